// Renders what kubectl-ostiary prints on a terminal as pages of HTML, from the golden files of its tests, which
// name the colors as {red}.
import { readFileSync, readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

const widths = ['80', '110', '160']

// palettes are the usual colors of a dark and of a light terminal.
const palettes = {
  dark: { back: '#16161d', text: '#d8d8dd', red: '#f47067', green: '#6bc46d', yellow: '#daaa3f', magenta: '#dcbdfb', cyan: '#56d4dd', faint: '#9a9aa5' },
  light: { back: '#ffffff', text: '#24292f', red: '#c4001d', green: '#116329', yellow: '#7d4e00', magenta: '#8250df', cyan: '#0b6b72', faint: '#5d646d' },
}

// terminals returns the parts of the golden files below root, with a name, a width, and the text.
export function terminals(root) {
  const folder = join(root, 'internal/cli')
  const files = readdirSync(folder, { recursive: true }).filter(f => /(^|\/)testdata\/terminal(\/[\w-]+)?\.txt$/.test(f)).sort()
  const found = files.flatMap(file => partsOf(file, readFileSync(join(folder, file), 'utf8')))
  if (found.length === 0) throw new Error('no test of internal/cli has a golden file of a terminal')
  return found
}

// partsOf divides a golden file at the lines that name a width and whether there are colors.
export function partsOf(file, text) {
  const [before, ...parts] = text.split(/^-- (\d+) columns, NO_COLOR=(1?) --\n/m)
  const name = basename(dirname(file)) === 'terminal' ? basename(file, '.txt') : basename(dirname(dirname(file)))
  const found = []
  for (let i = 0; i < parts.length; i += 3) found.push({ name, columns: Number(parts[i]), colored: parts[i + 1] === '', text: parts[i + 2] })
  for (const colored of [true, false]) {
    const columns = found.filter(p => p.colored === colored).map(p => String(p.columns)).sort((a, b) => a - b)
    if (before !== '' || columns.join() !== widths.join()) throw new Error(`${file}: it needs the widths ${widths} with and without colors, not ${columns}`)
  }
  return found
}

// terminalPage returns a page with one part in the colors of a dark or a light terminal.
export function terminalPage({ name, columns, text }, scheme) {
  const palette = palettes[scheme]
  const rules = Object.entries(palette).filter(([color]) => color !== 'back' && color !== 'text').map(([color, value]) => `.${color}{color:${value}}`).join('')
  const escaped = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  const body = escaped.replace(/\{(red|green|yellow|magenta|cyan|faint|bold)\}/g, '<span class="$1">').replaceAll('{/}', '</span>')
  return `<!doctype html><html lang="en"><head><title>${name}, ${columns} columns</title><style>body{margin:0;background:${palette.back};color:${palette.text}}` +
    `pre{margin:0;padding:12px;width:${columns}ch;font:14px/1.35 monospace;white-space:pre-wrap;word-break:break-all}.bold{font-weight:bold}${rules}</style></head>` +
    `<body><main><pre>${body}</pre></main></body></html>`
}
