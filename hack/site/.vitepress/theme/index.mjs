import DefaultTheme from 'vitepress/theme'
import { h } from 'vue'
import Recording from './Recording.vue'
import Versions from './Versions.vue'
import { copyCommands } from './copy.mjs'
import './style.css'

export default {
  extends: DefaultTheme,
  Layout: () => h(DefaultTheme.Layout, null, {
    'nav-bar-content-after': () => h(Versions),
    'nav-screen-content-after': () => h(Versions),
  }),
  enhanceApp({ app }) {
    app.component('Recording', Recording)
    if (!import.meta.env.SSR) document.addEventListener('click', copyCommands, true)
  },
}
