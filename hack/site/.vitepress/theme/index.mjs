import DefaultTheme from 'vitepress/theme'
import { defineAsyncComponent, h } from 'vue'
import Catalogue from './Catalogue.vue'
import Start from './Start.vue'
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
    app.component('Recording', defineAsyncComponent(() => import('./Recording.vue')))
    app.component('Catalogue', Catalogue)
    app.component('start', Start)
    if (!import.meta.env.SSR) document.addEventListener('click', copyCommands, true)
  },
}
