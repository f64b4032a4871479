// The structure of the site: which page is where. stage.mjs fails if a document is missing here.

export const repository = 'https://github.com/ostiary/ostiary'

// outside are the documents in other folders than docs, with their pages.
export const outside = {
  'README.md': 'start/readme.md',
  'CONTRIBUTING.md': 'project/contributing.md',
  'SECURITY.md': 'project/security.md',
  'CHANGELOG.md': 'project/changelog.md',
  'CODE_OF_CONDUCT.md': 'project/code-of-conduct.md',
}

// names are titles of pages whose heading is that of the project.
export const names = { 'start/readme.md': 'Overview' }

// replaced are documents that the site has in another form: the catalogue of the library.
export const replaced = { 'docs/reference/library.md': 'library/index.md' }

// folders are the ones without a README.md that documents link to, with the title of their generated page.
export const folders = { adr: 'Decisions' }

// sections are the groups of the sidebar, with patterns of pages. The first section with a
// matching pattern has the page; pages of one pattern are in alphabetical order.
export const sections = [
  ['Start', ['start/readme', 'start/*']],
  ['Tutorials', ['tutorials/first-policy', 'tutorials/*']],
  ['Operations', ['operations/install', 'operations/index', 'operations/high-availability', 'operations/gitops', 'operations/*']],
  ['Policies', ['policies/index', 'policies/*']],
  ['Library', ['library/index']],
  ['Plugins', ['plugins/*']],
  ['CEL cookbook', ['cookbook/index', 'cookbook/*']],
  ['Command line', ['cli/index', 'cli/*']],
  ['Migration', ['migration/steps', 'migration/*']],
  ['Reference', ['reference/webhookpolicy', 'reference/*']],
  ['Design', ['design/architecture', 'design/*']],
  ['Security', ['security/index', 'security/*']],
  ['Performance', ['performance/index', 'performance/*']],
  ['Chaos tests', ['chaos/index', 'chaos/*']],
  ['Decisions', ['adr/index', 'adr/*']],
  ['Project', ['project/*']],
]
