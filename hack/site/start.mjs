// Makes the start page from start.md. Its policy, denial and figures are those of documents, which tests
// compare with what happens.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const description = 'Admission policies for Kubernetes in CEL, which answer on every replica and prove that each API server calls them'

// startPage returns the page for the documents below root, with so many policies in the library.
export function startPage(root, policies) {
  const readme = readFileSync(join(root, 'README.md'), 'utf8')
  const comparison = readFileSync(join(root, 'docs/start/comparison.md'), 'utf8')
  const performance = readFileSync(join(root, 'docs/performance/README.md'), 'utf8')
  const one = (text, pattern, what) => {
    const found = pattern.exec(text)
    if (!found) throw new Error(`hack/site/start.md: no document has ${what}, which the start page shows`)
    return found
  }
  const figures = one(performance, /134 policies .* \| ([\d.]+ ms) with Ostiary, ([\d.]+ ms) with .* Kubernetes (1\.\d+), ([\d.]+ ms) with that of (1\.\d+) \(/, 'the figures of 134 policies')
  const cost = one(comparison, /\| engine \| set B \| set C \| run \|\n([^]*?)\n\n/, 'the table of costs')[1]
  const parts = {
    policy: one(readme, /```yaml[^\n]*\n[^]*?\n```/, 'the first policy')[0],
    denial: '```console\n' + one(readme, /\$ kubectl run [^]*?\n```/, 'the denial')[0],
    policies: String(policies),
    added: figures[1],
    native: `${figures[2]} in Kubernetes ${figures[3]} and ${figures[4]} in ${figures[5]}`,
    cost: '| engine | set B | set C |\n' + cost.split('\n').map(row => '|' + row.split('|').slice(1, 4).join('|') + '|').join('\n'),
  }
  const text = readFileSync(new URL('./start.md', import.meta.url), 'utf8').replace(/@(policy|denial|policies|added|native|cost)\b/g, (_, name) => parts[name])
  return `---\nlayout: start\ntitle: 'Ostiary: admission policies for Kubernetes'\ntitleTemplate: ':title'\ndescription: ${description}\nsidebar: false\nsearch: false\neditLink: false\n---\n\n${text}`
}
