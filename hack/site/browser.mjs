// Checks the built site in a headless Chromium: every page in both themes at the widths of a phone, a
// tablet and two desktops, where nothing is cut off (layout.mjs) and axe finds nothing; the size of the
// start page; the questions of users to the search; the filters of the catalogue; the copy buttons; the recording.
// It also takes screenshots, among them those of what kubectl-ostiary prints on a terminal.
//
//   node browser.mjs SITE SCREENSHOTS [PAGE...]
import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import puppeteer from 'puppeteer-core'
import { layoutFaults } from './layout.mjs'
import { questions } from './questions.mjs'
import { serve } from './server.mjs'
import { terminalPage, terminals } from './terminal.mjs'

const [folder, screenshots, ...chosen] = process.argv.slice(2)
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const widths = { phone: 390, 1024: 1024, 1440: 1440, 1920: 1920 }
const startBudget = { bytes: 300 * 1024, requests: 25 }

// shown are the pages with screenshots.
const shown = ['index', 'start/faq', 'start/comparison', 'cookbook/containers', 'tutorials/first-policy', 'tutorials/enforcing-safely', 'reference/webhookpolicy',
  'reference/metrics', 'library/index', 'library/image-registries', 'library/default-seccomp', 'policies/validations', 'policies/status', 'operations/install',
  'operations/audit', 'operations/gitops', 'operations/troubleshooting', 'design/registration', 'design/certificates', 'performance/index', 'performance/results',
  'cli/index', 'migration/kyverno-classic']

// excepted are rules that the theme does not follow: the groups of its sidebar are buttons with a
// button inside. Tables of facts may have a column without a name.
const excepted = { 'nested-interactive': { enabled: false }, 'empty-table-header': { enabled: false } }

const faults = []
const site = await serve(folder)
const browser = await puppeteer.launch({
  executablePath: chromium(), protocolTimeout: 120000, ignoreDefaultArgs: ['--hide-scrollbars'],
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
})
let checked = 0, expected = 0, rendered = 0
try {
  mkdirSync(screenshots, { recursive: true })
  const all = readdirSync(folder, { recursive: true }).filter(f => f.endsWith('.html') && !/^v\d/.test(f) && f !== '404.html').map(f => f.slice(0, -5)).sort()
  const pages = chosen.length > 0 ? chosen : all
  expected = 2 * pages.length
  await checkStart()
  await Promise.all(['light', 'dark'].map(scheme => checkPages(pages, scheme)))
  await checkQuestions(await newPage('light'), all)
  await checkControls(await newPage('dark'))
  await checkTerminals()
} catch (error) {
  faults.push(error.stack)
} finally {
  await browser.close()
  site.close()
}
faults.forEach(fault => console.error(fault))
console.log(`${rendered} screenshots of terminals`)
console.log(`${checked} views of pages in a browser, each at ${Object.keys(widths).length} widths, ${faults.length} faults`)
process.exitCode = faults.length > 0 || checked < expected || expected === 0 ? 1 : 0

// chromium returns the path of the browser.
function chromium() {
  try {
    return execFileSync('sh', ['-c', 'command -v chromium || command -v google-chrome'], { encoding: 'utf8' }).trim()
  } catch {
    console.error('site: install Chromium (Debian: apt-get install chromium)')
    process.exit(1)
  }
}

// newPage returns a tab, whose errors and requests to other hosts are faults.
async function newPage(scheme) {
  const page = await (await browser.createBrowserContext()).newPage()
  await page.setViewport({ width: 1440, height: 900 })
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }, { name: 'prefers-reduced-motion', value: 'reduce' }])
  const fault = text => faults.push(`${scheme} ${page.url().replace(site.address, '')}: ${text}`)
  page.on('pageerror', error => fault(error.message))
  page.on('console', message => ['error', 'warn'].includes(message.type()) && fault(`the console has ${message.text()}`))
  page.on('response', response => response.status() >= 400 && fault(`${response.url()} returns ${response.status()}`))
  page.on('request', request => request.url().startsWith('http') && !request.url().startsWith(site.address) && fault(`it loads ${request.url()}`))
  return page
}

async function open(page, path) {
  await page.goto(`${site.address}${path}.html`, { waitUntil: 'load' })
  await page.waitForFunction(() => document.querySelector('#app')?.__vue_app__)
}

async function checkPages(pages, scheme) {
  const page = await newPage(scheme)
  for (const [i, path] of pages.entries()) {
    const axed = (i % 2 === 0) === (scheme === 'dark') ? 'phone' : '1440' // each theme at one width
    await open(page, path)
    checked++
    if ((await page.evaluate(() => document.documentElement.classList.contains('dark'))) !== (scheme === 'dark')) faults.push(`${path}: not in the theme ${scheme}`)
    for (const [name, width] of Object.entries(widths)) {
      await page.setViewport({ width, height: 900 })
      const fault = text => faults.push(`${scheme} ${name} ${path}: ${text}`)
      for (const found of await page.evaluate(layoutFaults)) fault(found)
      if (name === axed) await checkAccess(page, fault)
      if (shown.includes(path)) await page.screenshot({ path: join(screenshots, `${path.replaceAll('/', '-')}-${name}-${scheme}.png`), fullPage: path === 'index' })
    }
  }
}

async function checkAccess(page, fault, runOnly = ['wcag2a', 'wcag2aa', 'best-practice'], rules = excepted) {
  await page.evaluate(axe)
  const { violations } = await page.evaluate((runOnly, rules) => window.axe.run(document, { resultTypes: ['violations'], runOnly, rules }), runOnly, rules)
  for (const v of violations) fault(`${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.target.join(' ')).join('; ')}`)
}

// checkStart expects that the start page loads little. It prints the time, which depends on the machine.
async function checkStart() {
  const page = await newPage('light')
  Object.assign(site.counts, { bytes: 0, requests: 0 })
  const start = performance.now()
  await open(page, 'index')
  await page.evaluate(() => document.fonts.ready.then(() => undefined))
  const { bytes, requests } = site.counts
  console.log(`start page: ${Math.ceil(bytes / 1024)} KiB compressed, ${requests} requests, ${Math.round(performance.now() - start)} ms`)
  if (bytes > startBudget.bytes) faults.push(`the start page loads ${bytes} bytes, at most ${startBudget.bytes} are allowed`)
  if (requests > startBudget.requests) faults.push(`the start page sends ${requests} requests, at most ${startBudget.requests} are allowed`)
}

// checkQuestions types each question, and expects its page among the first three results.
async function checkQuestions(page, pages) {
  await open(page, 'index')
  await page.click('.VPNavBarSearch button')
  await page.waitForSelector('.VPLocalSearchBox input')
  for (const [question, want] of Object.entries(questions)) {
    if (!pages.includes(want)) faults.push(`questions.mjs: there is no page ${want}`)
    await page.$eval('.VPLocalSearchBox input', input => { input.value = ''; input.dispatchEvent(new Event('input')) })
    await page.waitForFunction(() => !document.querySelector('.VPLocalSearchBox .result'))
    await page.$eval('.VPLocalSearchBox input', (input, text) => { input.value = text; input.dispatchEvent(new Event('input')) }, question)
    await page.waitForSelector('.VPLocalSearchBox .result').catch(() => {})
    const found = await page.$$eval('.VPLocalSearchBox .result', results => results.slice(0, 3).map(r => new URL(r.href).pathname.slice(1).replace(/\.html$/, '').replace(/\/$/, '/index')))
    if (!found.includes(want)) faults.push(`the search for "${question}" finds ${found.join(', ')} first, not ${want}`)
    if (question === 'disable policy') await page.screenshot({ path: join(screenshots, 'search.png') })
  }
}

// checkControls expects that the filters of the catalogue leave some policies, that the button of a
// console copies only its commands, and that the recording plays.
async function checkControls(page) {
  await open(page, 'library/index')
  const count = () => page.$$eval('ul.cards li', cards => cards.length)
  const every = await count()
  await page.evaluate(() => { const s = document.querySelectorAll('.filters select')[1]; s.value = 'critical'; s.dispatchEvent(new Event('change')) })
  const critical = await count()
  await page.type('.filters input', 'zzz')
  if (!(every > critical && critical > 0 && (await count()) === 0)) faults.push(`the filters leave ${every}, ${critical} and ${await count()} policies`)
  const context = page.browserContext()
  await context.overridePermissions(site.address, ['clipboard-read', 'clipboard-write', 'clipboard-sanitized-write'])
  await open(page, 'tutorials/first-policy')
  await page.bringToFront()
  await page.hover('div.language-console')
  await page.click('div.language-console > button.copy')
  const copied = await page.evaluate(() => navigator.clipboard.readText())
  if (!copied.startsWith('kubectl apply -f require-owner.yaml\nkubectl wait ')) faults.push(`the button of a console copies ${JSON.stringify(copied)}`)
  await open(page, 'start/faq')
  await page.waitForSelector('.recording .ap-player')
  await page.waitForFunction(() => document.querySelector('.recording').innerText.includes('denied request'), { timeout: 10000 })
    .catch(() => faults.push('the recording does not begin with a denial'))
  await page.$eval('.recording', recording => recording.scrollIntoView())
  await page.screenshot({ path: join(screenshots, 'poster.png') })
  await page.click('.recording')
  await page.waitForFunction(() => document.querySelector('.recording')?.innerText.includes('control plane'), { timeout: 30000 })
    .catch(() => faults.push('the recording does not play'))
  await page.screenshot({ path: join(screenshots, 'recording.png') })
}

// checkTerminals takes screenshots of what commands print, in two themes, and of the heat map as people with
// deficiencies of colour vision see it.
async function checkTerminals() {
  const shows = ['none', 'deuteranopia', 'achromatopsia']
  const page = await (await browser.createBrowserContext()).newPage()
  mkdirSync(join(screenshots, 'terminal'), { recursive: true })
  for (const part of terminals('../..').filter(p => p.colored)) {
    await page.setViewport({ width: 10 * part.columns, height: 100 })
    for (const scheme of ['dark', 'light']) {
      await page.setContent(terminalPage(part, scheme))
      await checkAccess(page, text => faults.push(`${scheme} terminal ${part.name}, ${part.columns} columns: ${text}`), ['color-contrast'], {})
      for (const vision of part.name === 'eval-heat-map' ? shows : ['none']) {
        await page.emulateVisionDeficiency(vision)
        const name = [part.name, part.columns, scheme, ...(vision === 'none' ? [] : [vision])].join('-')
        await (await page.$('pre')).screenshot({ path: join(screenshots, 'terminal', name + '.png') })
        rendered++
      }
      await page.emulateVisionDeficiency('none')
    }
  }
}
