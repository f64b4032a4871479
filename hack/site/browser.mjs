// Checks the built site in a headless Chromium: every page in a light and a dark theme, one at the
// width of a phone and one at that of a desktop, with axe (contrast, names of controls and others) and
// without horizontal scrolling; search; the copy buttons; the recording.
//
//   node browser.mjs SITE SCREENSHOTS
import { execFileSync } from 'node:child_process'
import { createReadStream, existsSync, mkdirSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { extname, join } from 'node:path'
import puppeteer from 'puppeteer-core'

const [folder, screenshots] = process.argv.slice(2)
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.png': 'image/png', '.woff2': 'font/woff2' }
const views = [
  { name: 'phone-dark', width: 390, height: 844, scheme: 'dark' },
  { name: 'phone-light', width: 390, height: 844, scheme: 'light' },
  { name: 'desktop-dark', width: 1440, height: 900, scheme: 'dark' },
  { name: 'desktop-light', width: 1440, height: 900, scheme: 'light' },
]
// shown are the pages with screenshots, which every view checks. The others are checked in both themes,
// each at another width.
const shown = ['index', 'demo', 'comparison', 'cookbook/containers', 'tutorials/first-policy', 'reference/webhookpolicy', 'reference/library']

// excepted are rules that the theme does not follow: the groups of its sidebar are buttons with a
// button inside. Tables of facts may have a column without a name.
const excepted = { 'nested-interactive': { enabled: false }, 'empty-table-header': { enabled: false } }

const faults = []
const server = createServer((request, response) => {
  const path = join(folder, decodeURI(new URL(request.url, 'http://localhost').pathname)).replace(/\/$/, '/index.html')
  const found = existsSync(path) && statSync(path).isFile()
  response.writeHead(found ? 200 : 404, { 'Content-Type': types[extname(path)] ?? 'text/plain' })
  found ? createReadStream(path).pipe(response) : response.end()
}).listen(0, '127.0.0.1')
await new Promise(resolve => server.once('listening', resolve))
const address = `http://127.0.0.1:${server.address().port}/`

const browser = await puppeteer.launch({ executablePath: chromium(), args: ['--no-sandbox', '--disable-gpu'], protocolTimeout: 120000 })
let checked = 0, expected = 0
try {
  mkdirSync(screenshots, { recursive: true })
  const pages = readdirSync(folder, { recursive: true }).filter(f => f.endsWith('.html') && !/^v\d/.test(f) && f !== '404.html').map(f => f.slice(0, -5)).sort()
  expected = Math.max(100, 2 * pages.length)
  for (const [i, view] of views.entries()) {
    const page = await browser.newPage()
    await page.setViewport(view)
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: view.scheme }, { name: 'prefers-reduced-motion', value: 'reduce' }])
    page.on('pageerror', error => faults.push(`${view.name} ${page.url()}: ${error.message}`))
    page.on('request', request => request.url().startsWith('http') && !request.url().startsWith(address) && faults.push(`${page.url()} loads ${request.url()}`))
    for (const path of pages.filter((p, n) => shown.includes(p) || (n % 2 === 0) === (i % 3 === 0))) await checkPage(page, path, view)
    await page.close()
  }
  await checkControls(await browser.newPage())
} catch (error) {
  faults.push(error.stack)
} finally {
  await browser.close()
  server.close()
}
faults.forEach(fault => console.error(fault))
console.log(`${checked} views of pages in a browser, ${faults.length} faults`)
process.exitCode = faults.length > 0 || checked < expected ? 1 : 0

// chromium returns the path of the browser.
function chromium() {
  try {
    return execFileSync('sh', ['-c', 'command -v chromium || command -v google-chrome'], { encoding: 'utf8' }).trim()
  } catch {
    console.error('site: install Chromium (Debian: apt-get install chromium)')
    process.exit(1)
  }
}

async function checkPage(page, path, view) {
  await page.goto(address + path + '.html', { waitUntil: 'networkidle0' })
  checked++
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
  if (wide > 0) faults.push(`${view.name} ${path}: ${wide} pixels wider than the window`)
  if ((await page.evaluate(() => document.documentElement.classList.contains('dark'))) !== (view.scheme === 'dark')) faults.push(`${view.name} ${path}: not in this theme`)
  await page.evaluate(axe)
  const { violations } = await page.evaluate(rules => window.axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'best-practice'], rules }), excepted)
  for (const v of violations) faults.push(`${view.name} ${path}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.target.join(' ')).join('; ')}`)
  if (shown.includes(path)) await page.screenshot({ path: join(screenshots, `${path.replaceAll('/', '-')}-${view.name}.png`) })
}

// checkControls expects that search finds a page, that the button of a console copies only its
// commands, and that the recording plays.
async function checkControls(page) {
  await browser.defaultBrowserContext().overridePermissions(address, ['clipboard-read', 'clipboard-write', 'clipboard-sanitized-write'])
  await page.setViewport(views[2])
  await page.goto(address + 'tutorials/first-policy.html', { waitUntil: 'networkidle0' })
  await page.hover('div.language-console')
  await page.click('div.language-console > button.copy')
  const copied = await page.evaluate(() => navigator.clipboard.readText())
  if (!copied.startsWith('kubectl apply -f require-owner.yaml\nkubectl wait ')) faults.push(`the button of a console copies ${JSON.stringify(copied)}`)
  await page.click('.VPNavBarSearch button')
  await page.waitForSelector('.VPLocalSearchBox input')
  await page.type('.VPLocalSearchBox input', 'breakGlass')
  await page.waitForSelector('.VPLocalSearchBox .result').catch(() => faults.push('search finds nothing for breakGlass'))
  await page.screenshot({ path: join(screenshots, 'search.png') })
  await page.goto(address + 'start/faq.html', { waitUntil: 'networkidle0' })
  await page.click('.recording')
  await page.waitForFunction(() => document.querySelector('.recording')?.innerText.includes('control plane'), { timeout: 30000 })
    .catch(() => faults.push('the recording does not play'))
  await page.screenshot({ path: join(screenshots, 'recording.png') })
}
