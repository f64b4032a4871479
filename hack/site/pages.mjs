// The structure of the site: which page is where. stage.mjs fails if a document is missing here.

export const repository = 'https://github.com/ostiary/ostiary'

// outside are the documents in other folders than docs, with their pages.
export const outside = {
  'README.md': 'index.md',
  'CONTRIBUTING.md': 'project/contributing.md',
  'SECURITY.md': 'project/security.md',
  'CHANGELOG.md': 'project/changelog.md',
  'CODE_OF_CONDUCT.md': 'project/code-of-conduct.md',
}

// folders are the ones that documents link to, with the title of their generated page.
export const folders = { adr: 'Decisions', features: 'Features of policies' }

// sections are the groups of the sidebar, with patterns of pages. The first section with a
// matching pattern has the page; pages of one pattern are in alphabetical order.
export const sections = [
  ['Start', ['index', 'demo', 'comparison', 'faq']],
  ['Tutorials', ['tutorials/first-policy', 'tutorials/*']],
  ['How-to guides', ['install', 'howto/*', 'certificate-sources', 'monitoring', 'features/break-glass', 'operation',
    'overload', 'connections', 'memory', 'troubleshooting', 'kubernetes-versions', 'releases']],
  ['Policies', ['policies', 'features/index', 'features/*', 'plugins', 'library']],
  ['CEL cookbook', ['cookbook', 'cookbook/*']],
  ['Command line', ['cli', 'lint', 'replay', 'doctor', 'status-command', '*-command']],
  ['Migration', ['migrating/steps', 'migrating/*', 'differences', 'plugin-differences']],
  ['Reference', ['reference/webhookpolicy', 'reference/*', 'status', 'metrics']],
  ['Plugins', ['plugins/*']],
  ['Explanation', ['architecture', 'registration', 'certificates', 'security', 'authentication', 'authors',
    'security-peers', 'performance', 'performance/*', 'chaos', 'chaos/*']],
  ['Decisions', ['adr/index', 'adr/*']],
  ['Project', ['project/*', '*']],
]
