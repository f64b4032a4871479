// Makes the pages of the policy library from the folder library: the catalogue with its filters, and a
// page for each policy with its text, what its PolicyTest shows, its settings, and how to install it.
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { parse, parseDocument, stringify, visit } from 'yaml'
import { repository } from './pages.mjs'

const prefix = 'admission.ostiary.dev/'
const block = (language, text) => '```' + language + '\n' + text.trimEnd() + '\n```\n'
const yaml = value => stringify(value, { indentSeq: false, lineWidth: 0, aliasDuplicateObjects: false })
const plain = text => text.replace(/[<{]/g, c => `&#${c.charCodeAt(0)};`) // neither HTML nor an expression of Vue
const cell = text => plain(text).replaceAll('|', '\\|').replace(/\s+/g, ' ')

// inBlocks returns the same object with block style instead of flow style that is too long for a line of the page.
function inBlocks(text) {
  const document = parseDocument(text)
  visit(document, { Collection: (_, node) => { if (node.flow && node.range[1] - node.range[0] > 60) node.flow = false } })
  const out = document.toString({ indentSeq: false, lineWidth: 0, flowCollectionPadding: false })
  if (!isDeepStrictEqual(parse(out), parse(text))) throw new Error(`the YAML is another object in block style:\n${text}`)
  return out
}

// readLibrary returns the policies below root, by category and name.
export function readLibrary(root) {
  if (!existsSync(join(root, 'library'))) return []
  return readdirSync(join(root, 'library'), { recursive: true }).filter(f => f.endsWith('/policy.yaml')).sort().map(file => {
    const folder = 'library/' + file.slice(0, -'/policy.yaml'.length)
    const text = readFileSync(join(root, folder, 'policy.yaml'), 'utf8')
    const { metadata, spec } = parse(text)
    const annotation = name => metadata.annotations[prefix + name] ?? ''
    const rules = [...spec.matchConstraints.resourceRules, ...(spec.podTemplates?.kinds ?? []).map(k => ({ resources: [k.resource] }))]
    return {
      folder, text, spec, name: metadata.name, title: annotation('title'), description: annotation('description'),
      category: annotation('category'), severity: annotation('severity'), remediation: annotation('remediation'), help: annotation('help'),
      standards: annotation('standard').split('; ').filter(s => s !== ''), resources: [...new Set(rules.flatMap(r => r.resources))].sort(),
      cases: parse(readFileSync(join(root, folder, 'policytest.yaml'), 'utf8'), { merge: true }).cases,
    }
  })
}

// listed returns what the catalogue filters by.
export function listed(policies) {
  return policies.map(({ name, title, description, category, severity, standards, resources }) => ({
    name, title, description, category, severity, resources, standards: [...new Set(standards.map(s => s.split(' ')[0]))],
  }))
}

// cataloguePage is the page with the filters.
export function cataloguePage(policies) {
  return `# Policy catalogue

The ${policies.length} policies of [the library](../policies/library.md), each with tests. Except for mutations, they report violations and deny no
request until you [change their action](../policies/library.md#enforce-policies) to Warn or Deny.

<Catalogue />
`
}

// policyPage is the page of one policy.
export function policyPage(policy, version) {
  return `# ${policy.title}: \`${policy.name}\`

${policy.category === 'Mutations' ? plain(policy.description) : 'Finds ' + plain(policy.description)}.

${facts(policy)}
## Policy

${block('yaml ' + policy.name + '.yaml', inBlocks(policy.text))}
${decisions(policy)}
${policy.remediation ? `## ${policy.category === 'Mutations' ? 'Avoid the change' : 'Fix a violation'}\n\n${plain(policy.remediation)}\n${policy.help ? `\nSee also: <${policy.help}>\n` : ''}` : ''}
${parameters(policy)}
${installation(policy, version)}`
}

function facts(policy) {
  const rows = { Category: policy.category, Severity: policy.severity, Standards: policy.standards.join('; '), Resources: policy.resources.join(', ') }
  return '| fact | value |\n|---|---|\n' + Object.entries(rows).filter(([, v]) => v !== '').map(([k, v]) => `| ${k} | ${cell(v)} |\n`).join('')
}

// decisions shows the cases of the PolicyTest: those with an effect first.
function decisions(policy) {
  const affected = policy.cases.filter(c => !['Allow', 'NoOpinion'].includes(c.expect.decision))
  const passing = policy.cases.filter(c => !affected.includes(c))
  const changes = affected.some(c => c.expect.decision === 'Mutate')
  return `## What it ${changes ? 'changes' : 'denies'}

${changes ? 'Its PolicyTest expects these changes.' : 'Its PolicyTest expects these violations, which the action Audit reports, Warn shows to the user, and Deny rejects.'}

${affected.map(example).join('\n')}
## What it ${changes ? 'leaves alone' : 'allows'}

${passing.map(example).join('\n')}`
}

function example({ name, expect, ...request }) {
  const { object: changed, message } = expect
  return `- **${cell(name)}**${message ? `: \`${message.replaceAll('`', "'")}\`` : ''}

  <details><summary>${changed ? 'Request and changed object' : 'Request'}</summary>

${indented(block('yaml', yaml(request)) + (changed ? '\n' + block('yaml changed', yaml(changed)) : ''))}
  </details>
`
}

const indented = text => text.replace(/^(?=.)/gm, '  ')

function parameters(policy) {
  const variable = policy.spec.variables?.[0]
  if (variable?.name !== 'params') return ''
  const about = /((?: {2}# .*\n)+) {2}- name: params\n/.exec(policy.text)[1].replaceAll('  # ', '').replace(/\s+/g, ' ').trim()
  const rows = Object.entries(JSON.parse(variable.expression)).map(([k, v]) => `| \`${k}\` | \`${JSON.stringify(v).replaceAll('|', '\\|')}\` |\n`).join('')
  return `## Parameters

${cell(about)}

| parameter | default |
|---|---|
${rows}
${block('yaml values.yaml', yaml({ policies: { [policy.name]: { params: JSON.parse(variable.expression) } } }))}
[Change params](../policies/library.md#change-params) shows the same with kustomize.
`
}

function installation(policy, version) {
  const folder = policy.folder
  const reference = `https://github.com/ostiary/ostiary//${folder}?ref=v${version}`
  const deny = policy.category === 'Mutations' ? '' : `
With \`https://github.com/ostiary/ostiary//library/actions/deny?ref=v${version}\` as the next component, the policy denies violations.
`
  return `## Install

${block('yaml kustomization.yaml', yaml({ apiVersion: 'kustomize.config.k8s.io/v1beta1', kind: 'Kustomization', components: [reference] }))}
${block('console', '$ kubectl apply -k .')}${deny}
From a clone, test it without a cluster, or apply it:

${block('console', `$ kubectl ostiary test ${folder}\n$ kubectl apply -f ${folder}/policy.yaml`)}
[The file](${repository}/blob/main/${folder}/policy.yaml) and [its PolicyTest](${repository}/blob/main/${folder}/policytest.yaml) are in the repository.
`
}
