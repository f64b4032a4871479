// Copies the documents of a version to the source folder of the site: README.md and docs, with
// a title and a description in front of each page. It changes no text; config.mjs rewrites links.
// The README.md of a folder is the page of the folder, as on GitHub. It adds the start page and the
// pages of the policy library.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { cataloguePage, listed, policyPage, readLibrary } from './catalogue.mjs'
import { folders, names, outside, replaced, repository, sections } from './pages.mjs'
import { startPage } from './start.mjs'

export const minDescription = 40
const maxDescription = 160

// stage copies the documents below root, and returns the pages by source.
export function stage(root, source) {
  rmSync(source, { recursive: true, force: true })
  const pages = {}
  for (const [document, page] of Object.entries(outside)) {
    if (existsSync(join(root, document))) pages[document] = page
  }
  for (const file of readdirSync(join(root, 'docs'), { recursive: true }).sort()) {
    if (basename(file) === 'README.md') pages['docs/' + dirname(file)] = join(dirname(file), 'index.md')
    if (file.endsWith('.md')) pages['docs/' + file] = replaced['docs/' + file] ?? file.replace(/README\.md$/, 'index.md')
    else if (file.includes('.')) copy(join(root, 'docs', file), join(source, /\.(png|svg)$/.test(file) ? '' : 'public', file))
  }
  const titles = {}
  for (const [document, page] of Object.entries(pages).filter(([document]) => document.endsWith('.md') && !replaced[document])) {
    const text = readFileSync(join(root, document), 'utf8')
    titles[page] = names[page] ?? titleOf(text, document)
    write(join(source, page), frontMatter(titles[page], descriptionOf(text), document) + text)
  }
  for (const [folder, title] of Object.entries(folders)) {
    const page = folder + '/index.md'
    const listed = Object.values(pages).filter(p => dirname(p) === folder).sort()
    if (listed.length === 0) continue
    pages['docs/' + folder] = page
    titles[page] = title
    const list = listed.map(p => `- [${titles[p]}](${basename(p)})`).join('\n')
    write(join(source, page), frontMatter(title, `${title}: ${listed.length} pages of the documentation of Ostiary for Kubernetes`, '') + `# ${title}\n\n${list}\n`)
  }
  if (existsSync(join(root, 'docs/images/icon.svg'))) copy(join(root, 'docs/images/icon.svg'), join(source, 'public/icon.svg'))
  const policies = stageLibrary(root, source, pages, titles)
  pages['hack/site/start.md'] = 'index.md'
  write(join(source, 'index.md'), startPage(root, policies.length))
  return { pages, sidebar: { '/library/': policiesBar(policies), '/': sidebar(titles) } }
}

// stageLibrary writes the pages of the policy library, and returns its policies.
function stageLibrary(root, source, pages, titles) {
  const policies = readLibrary(root)
  if (policies.length === 0) return policies
  const version = /^version: (.+)$/m.exec(readFileSync(join(root, 'charts/ostiary-policies/Chart.yaml'), 'utf8'))[1]
  for (const policy of policies) {
    const page = `library/${policy.name}.md`
    pages[policy.folder + '/policy.yaml'] = page
    const description = `${policy.title}, a policy for Kubernetes with tests: ${policy.description}`
    write(join(source, page), frontMatter(`${policy.title} (${policy.name})`, description, policy.folder + '/policy.yaml') + policyPage(policy, version))
  }
  const catalogue = replaced['docs/reference/library.md']
  Object.assign(pages, { library: catalogue, 'docs/reference/library.md': catalogue })
  titles[catalogue] = 'Policy catalogue'
  const description = `${policies.length} admission policies for Kubernetes with tests, by category, severity, standard and resource`
  write(join(source, catalogue), frontMatter(titles[catalogue], description, '', { policies: listed(policies), aside: false }) + cataloguePage(policies))
  return policies
}

function policiesBar(policies) {
  const categories = [...new Set(policies.map(p => p.category))]
  const items = category => policies.filter(p => p.category === category).map(p => ({ text: p.title, link: '/library/' + p.name }))
  return [
    { text: 'Policy library', items: [{ text: 'Catalogue', link: '/library/' }, { text: 'How to use it', link: '/policies/library' }] },
    ...categories.map(text => ({ text, collapsed: true, items: items(text) })),
  ]
}

function copy(from, to) {
  mkdirSync(dirname(to), { recursive: true })
  cpSync(from, to)
}

function write(path, text) {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
}

function titleOf(text, document) {
  const heading = /^# (.+)$/m.exec(text)
  if (!heading) throw new Error(`${document}: it has no title: begin it with a line "# Title"`)
  return heading[1].replaceAll('`', '')
}

// descriptionOf returns the beginning of the first paragraph that is long enough to describe a page.
export function descriptionOf(text) {
  const plain = text.split(/\n\s*\n/).filter(p => /^([A-Z*[]|`[^`])/.test(p))
    .map(p => p.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replace(/[`*]/g, '').replace(/\s+/g, ' ').trim())
    .find(p => p.length >= minDescription) ?? ''
  return plain.length <= maxDescription ? plain : plain.slice(0, maxDescription).replace(/\s\S*$/, '') + '…'
}

function frontMatter(title, description, source, more = {}) {
  const edit = source ? { edit: `${repository}/edit/main/${source}` } : { editLink: false }
  const fields = { title, description: description || `${title}: a page of the documentation of Ostiary for Kubernetes`, ...edit, ...more }
  return '---\n' + Object.entries(fields).map(([k, v]) => `${k}: ${JSON.stringify(v)}\n`).join('') + '---\n\n'
}

function sidebar(titles) {
  const left = new Set(Object.keys(titles).map(p => p.replace(/\.md$/, '')).sort())
  const taken = pattern => {
    const expression = new RegExp('^' + pattern.replace('*', '[^/]*') + '$')
    return [...left].filter(p => expression.test(p)).map(p => (left.delete(p), p))
  }
  const groups = sections.map(([text, patterns]) => ({ text, collapsed: text !== 'Start' && text !== 'Tutorials', pages: patterns.flatMap(taken) }))
  if (left.size > 0) throw new Error(`no section of pages.mjs has these pages: ${[...left].join(', ')}`)
  return groups.filter(g => g.pages.length > 0).map(({ pages, ...group }) => ({
    ...group, items: pages.map(p => ({ text: titles[p + '.md'], link: '/' + p.replace(/(^|\/)index$/, '$1') })),
  }))
}
