import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, posix } from 'node:path'
import { defineConfig } from 'vitepress'
import { repository } from '../pages.mjs'
import { miniSearch } from './search.mjs'

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
  md.core.ruler.push('tables', ({ tokens }) => labelCells(tokens))
  for (const rule of ['text', 'code_inline']) { // Vue evaluates what is between double braces.
    const render = md.renderer.rules[rule]
    md.renderer.rules[rule] = (...args) => render(...args).replaceAll('{{', '&#123;&#123;')
  }
  const code = md.renderer.rules.code_inline
  md.renderer.rules.code_inline = (...args) => code(...args).replace(/(?<=[\s>])--?[A-Za-z][\w-]{0,24}/g, '<span class="whole">$&</span>')
}

// labelCells gives each cell the name of its column, which a card on a phone shows, and marks code that
// has no place to break.
function labelCells(tokens) {
  let labels = [], column = 0
  for (const [i, token] of tokens.entries()) {
    if (token.type === 'thead_open') labels = []
    if (token.type === 'tr_open') column = 0
    if (token.type === 'th_open') labels.push(tokens[i + 1].children.map(c => c.content).join(''))
    if (token.type === 'td_open' && labels[column++]) token.attrSet('data-label', labels[column - 1])
    if (token.type === 'inline' && tokens[i - 1]?.type === 'td_open') {
      for (const code of token.children.filter(c => c.type === 'code_inline' && c.content.length <= 20)) code.attrSet('class', 'short')
    }
  }
}

// lines marks lines of code, so that they continue on the next row below their indentation. Those with
// aligned columns continue below their last column, if it is not far to the right.
const lines = {
  name: 'lines',
  line(node, number) {
    const text = this.source.split('\n')[number - 1] ?? ''
    const command = /^\$ /.test(text) || /^(sh|shell|bash)$/.test(this.options.lang)
    const indent = /^ */.exec(text)[0].length
    const column = /^ *(- )?[\w.]+:/.test(text) ? 0 : /^.*\S {3,}(?=\S)/.exec(text)?.[0].length ?? 0
    if (column > 0 && !command) this.addClassToHast(node, 'aligned')
    if (column > 0 && column <= 60) this.addClassToHast(node, 'hanging')
    if (text.length > 30 && indent + column > 0) node.properties.style = `--indent:${indent}ch;--column:${column}ch`
  },
  // A browser breaks a line after a hyphen or a question mark, and so would divide "-f" and ".?labels".
  span(node) {
    node.children = node.children.flatMap(child => child.type === 'text' ? keepWhole(child.value) : [child])
  },
}

// keepWhole puts the options of commands, and the fields of expressions that may be absent, in elements that are not divided.
function keepWhole(text) {
  const parts = text.split(/((?<![\w-])--?[A-Za-z][\w-]{0,24}|\.\?\w{1,24})/)
  return parts.map((value, i) => i % 2 === 0 ? { type: 'text', value } :
    { type: 'element', tagName: 'span', properties: { class: 'whole' }, children: [{ type: 'text', value }] })
}

export default defineConfig({
  title: 'Ostiary',
  titleTemplate: ':title · Ostiary',
  description: 'Admission policies for Kubernetes',
  lang: 'en',
  base: site.base,
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: site.base + 'icon.svg' }]],
  srcDir: 'src',
  cleanUrls: false,
  lastUpdated: false,
  markdown: {
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    anchor: { slugify }, toc: { slugify }, headers: { slugify }, codeTransformers: [lines], config: rewriteLinks,
  },
  themeConfig: {
    versions: { current: site.version.name, all: site.versions, root: site.root },
    search: { provider: 'local', options: { miniSearch } },
    nav: [
      { text: 'Tutorials', link: '/tutorials/first-policy' },
      { text: 'Cookbook', link: '/cookbook/' },
      { text: 'API', link: '/reference/webhookpolicy' },
      { text: 'Library', link: '/library/' },
    ].filter(item => sources[item.link.slice(1).replace(/\/$/, '/index') + '.md']),
    sidebar: site.sidebar,
    outline: [2, 3],
    externalLinkIcon: true,
    socialLinks: [{ icon: 'github', link: repository, ariaLabel: 'The repository on GitHub' }],
    editLink: { text: 'Edit this page on GitHub', pattern: ({ frontmatter }) => frontmatter.edit },
    footer: { message: 'Apache License 2.0' },
  },
})
