// Checks the pages of a built site: links, titles, descriptions, headings and images.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { parse } from 'node-html-parser'
import { minDescription } from './stage.mjs'

// check returns the faults of the site in a folder, which is served below base.
export function check(folder, base) {
  const files = readdirSync(folder, { recursive: true }).filter(f => f.endsWith('.html')).sort()
  const pages = new Map(files.map(f => [f, read(join(folder, f))]))
  const faults = []
  const titles = new Map()
  let links = 0
  for (const [file, page] of pages) {
    const fault = text => faults.push(`${file}: ${text}`)
    if (file.endsWith('404.html')) continue
    checkPage(page, fault)
    const version = dirname(file).split('/')[0].match(/^v\d/) ? dirname(file).split('/')[0] : ''
    const same = titles.get(version + page.title)
    if (same) fault(`${same} has the same title "${page.title}": rename one of them`)
    titles.set(version + page.title, file)
    for (const link of page.links) {
      links++
      const wrong = checkLink(link, file, folder, base, pages)
      if (wrong) fault(wrong)
    }
  }
  return { pages: pages.size, links, faults }
}

function read(path) {
  const text = readFileSync(path, 'utf8')
  const document = parse(text)
  const content = document.querySelector('main') ?? document
  return {
    title: document.querySelector('title')?.text ?? '',
    description: document.querySelector('meta[name=description]')?.getAttribute('content') ?? '',
    language: document.querySelector('html')?.getAttribute('lang') ?? '',
    levels: content.querySelectorAll('h1,h2,h3,h4,h5,h6').map(h => Number(h.tagName[1])),
    images: document.querySelectorAll('img').map(i => i.getAttribute('alt') ?? ''),
    ids: new Set([...text.matchAll(/<[a-z][^>]*? id="([^"]+)"/g)].map(m => m[1])),
    links: [
      ...document.querySelectorAll('a[href]').map(a => a.getAttribute('href')),
      ...document.querySelectorAll('img[src],script[src]').map(i => i.getAttribute('src')),
      ...document.querySelectorAll('link[rel=stylesheet]').map(l => l.getAttribute('href')),
    ],
  }
}

function checkPage(page, fault) {
  if (page.title.length < 8) fault(`the title "${page.title}" has fewer than 8 characters`)
  if (page.description.length < minDescription) fault(`the description "${page.description}" has fewer than ${minDescription} characters`)
  if (page.language !== 'en') fault(`the language is "${page.language}", not "en"`)
  if (page.levels[0] !== 1 || page.levels.filter(l => l === 1).length !== 1) fault('the page needs one heading of level 1, at its beginning')
  page.levels.forEach((level, i) => {
    if (i > 0 && level > page.levels[i - 1] + 1) fault(`a heading of level ${level} follows one of level ${page.levels[i - 1]}`)
  })
  if (page.images.some(alt => alt.trim() === '')) fault('an image has no alternative text')
}

// checkLink returns what is wrong with a link, or nothing.
function checkLink(link, file, folder, base, pages) {
  if (/^(https:|mailto:|data:)/.test(link)) return ''
  if (/^[a-z]+:/.test(link)) return `the link ${link} is neither relative nor https`
  const [path, hash = ''] = link.split('#')
  const absolute = path === '' ? file : path.startsWith('/') ? path.slice(base.length) : posix.join(posix.dirname(file), path)
  if (path.startsWith('/') && !path.startsWith(base)) return `the link ${link} leaves the site, which begins with ${base}`
  const target = absolute === '' || absolute.endsWith('/') ? absolute + 'index.html' : absolute
  const found = [target, target + '.html'].map(decodeURI).find(f => existsSync(join(folder, f)) && statSync(join(folder, f)).isFile())
  if (!found) return `the link ${link} leads nowhere`
  if (hash && pages.has(found) && !pages.get(found).ids.has(decodeURIComponent(hash))) return `${found} has no element with the id ${hash}`
  return ''
}
