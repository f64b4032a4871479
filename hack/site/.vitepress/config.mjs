import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, posix } from 'node:path'
import { defineConfig } from 'vitepress'
import { repository } from '../pages.mjs'

const site = JSON.parse(readFileSync(new URL('../site.json', import.meta.url)))
const sources = Object.fromEntries(Object.entries(site.pages).map(([source, page]) => [page, source]))

// slugify makes the anchors that GitHub makes, so that links work in both places.
const slugify = text => text.trim().toLowerCase().replace(/[^\p{L}\p{N}\p{M} _-]/gu, '').replace(/ /g, '-')

// target turns a link between files of the repository into one between pages, or to GitHub.
function target(link, page) {
  const source = sources[page]
  if (!source?.endsWith('.md') || /^([a-z]+:|#)/.test(link)) return link
  const [path, hash] = link.split('#')
  const file = posix.join(posix.dirname(source), path).replace(/\/$/, '')
  const anchor = hash ? '#' + hash : ''
  if (site.pages[file]) return posix.relative(posix.dirname('/' + page), '/' + site.pages[file]) + anchor
  if (!existsSync(join(site.documents, file))) throw new Error(`${source}: the link to ${link} leads nowhere`)
  if (file.startsWith('docs/') && file.endsWith('.png')) return './' + posix.relative(posix.dirname('/' + page), '/' + file.slice(5))
  if (file.startsWith('docs/') && !statSync(join(site.documents, file)).isDirectory()) return '/' + file.slice(5)
  const view = statSync(join(site.documents, file)).isDirectory() ? 'tree' : 'blob'
  return `${repository}/${view}/${site.version.ref}/${file}${anchor}`
}

function rewriteLinks(md) {
  md.core.ruler.push('repository-links', state => {
    for (const token of state.tokens.flatMap(t => t.children ?? [])) {
      const attribute = { link_open: 'href', image: 'src' }[token.type]
      if (attribute) token.attrSet(attribute, target(token.attrGet(attribute), state.env.relativePath))
    }
  })
  // A recording follows a comment with this mark.
  md.core.ruler.push('recording', state => {
    for (const token of state.tokens) {
      if (token.type === 'code_block') token.attrSet('tabindex', '0') // it scrolls, also with a keyboard
      token.content = token.content.replace(/<!-- recording: (\S+) -->/, '<Recording file="$1" />')
    }
  })
  const text = md.renderer.rules.text // Vue evaluates what is between double braces.
  md.renderer.rules.text = (...args) => text(...args).replaceAll('{{', '&#123;&#123;')
}

export default defineConfig({
  title: 'Ostiary',
  titleTemplate: ':title · Ostiary',
  description: 'Admission policies for Kubernetes',
  lang: 'en',
  base: site.base,
  srcDir: 'src',
  cleanUrls: false,
  lastUpdated: false,
  markdown: { theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' }, anchor: { slugify }, toc: { slugify }, headers: { slugify }, config: rewriteLinks },
  transformPageData: page => page.relativePath === 'index.md' ? { title: 'Ostiary: admission policies for Kubernetes', titleTemplate: ':title' } : {},
  themeConfig: {
    versions: { current: site.version.name, all: site.versions, root: site.root },
    search: { provider: 'local' },
    nav: [
      { text: 'Tutorials', link: '/tutorials/first-policy' },
      { text: 'Cookbook', link: '/cookbook/' },
      { text: 'API', link: '/reference/webhookpolicy' },
      { text: 'Library', link: '/reference/library' },
    ].filter(item => sources[item.link.slice(1).replace(/\/$/, '/index') + '.md']),
    sidebar: site.sidebar,
    outline: [2, 3],
    externalLinkIcon: true,
    socialLinks: [{ icon: 'github', link: repository, ariaLabel: 'The repository on GitHub' }],
    editLink: { text: 'Edit this page on GitHub', pattern: ({ frontmatter }) => frontmatter.edit },
    footer: { message: 'Apache License 2.0' },
  },
})
