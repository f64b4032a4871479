// What the search of the site finds first. Its functions are sent to the browser as text, so each one
// contains everything that it uses.

// keywords are what users type for a section whose text has other words. Without an anchor, it is the
// beginning of the page.
const keywords = {
  '/operations/recovery.html#a-policy-denies-too-much': 'disable suspend pause turn off stop a policy namespace stuck terminating',
  '/operations/recovery.html': 'locked out of the cluster everything is denied',
  '/operations/troubleshooting.html#a-request-is-denied': 'why is it denied blocked rejected forbidden',
  '/operations/troubleshooting.html#requests-are-slow': 'slow latency timeout',
  '/operations/install.html#upgrading': 'upgrade update new version of ostiary',
  '/operations/install.html#uninstalling': 'uninstall remove delete ostiary',
  '/operations/releases.html#roll-back': 'rollback roll back downgrade old version',
  '/policies/library.html#exclude-namespaces-and-users': 'exempt exclude a namespace user service account',
  '/policies/break-glass.html': 'exception exempt exclude bypass skip a policy for a user emergency',
  '/policies/mutations.html': 'set a default value change inject sidecar',
  '/security/authors.html': 'permission rbac to write policies who may',
  '/tutorials/enforcing-safely.html': 'try a policy in production dry run roll out gradually warn instead of deny',
  '/migration/gatekeeper.html': 'migrate move switch from gatekeeper constraint templates',
  '/migration/steps.html': 'migrate move switch from kyverno gatekeeper native to ostiary',
  '/start/comparison.html': 'compare versus difference kyverno gatekeeper kubewarden alternatives',
  '/operations/audit.html': 'violations of existing objects background scan',
}

// extractField gives a section its keywords when the index is made.
function extractField(section, field) {
  if (field !== 'keywords') return section[field]
  const id = section.id.replace(/^.*(\/[^/]+\/[^/]+)$/, '$1')
  return keywords[section.titles.length === 0 ? id.replace(/#.*/, '') : id]
}

// indexTerm makes the singular of a plural.
function indexTerm(term) {
  const word = term.toLowerCase()
  return /[^aeious]s$/.test(word) && word.length > 4 ? word.slice(0, -1) : word
}

// queryTerms drops words without meaning and adds synonyms.
function queryTerms(term) {
  const dropped = ['a', 'an', 'and', 'are', 'but', 'can', 'do', 'does', 'for', 'from', 'how', 'i', 'in', 'is', 'it', 'its', 'my', 'of', 'on', 'or', 'the', 'to',
    'what', 'which', 'why', 'with']
  const synonyms = { suspend: ['disable'], pause: ['disable'], exception: ['exempt', 'exclude'], exempt: ['exclude'], rollback: ['roll'], downgrade: ['roll'],
    update: ['upgrade'], blocked: ['denied'], rejected: ['denied'], slow: ['latency'], stuck: ['terminating'], argo: ['argocd'], argocd: ['argo'], remove: ['uninstall'] }
  const word = term.toLowerCase()
  if (dropped.includes(word)) return []
  return [/[^aeious]s$/.test(word) && word.length > 4 ? word.slice(0, -1) : word, ...(synonyms[word] ?? [])]
}

// boostDocument prefers guides to references, and references to decisions and measurements.
function boostDocument(id) {
  const weights = { tutorials: 1.6, operations: 1.5, policies: 1.5, migration: 1.3, cli: 1.2, start: 1.3, cookbook: 1.1, security: 1, plugins: 1, reference: 0.6,
    library: 0.8, design: 0.6, performance: 0.6, chaos: 0.4, project: 0.4, adr: 0.2 }
  const folder = Object.keys(weights).find(name => id.includes(`/${name}/`))
  return folder ? weights[folder] : 1
}

export const miniSearch = {
  options: { fields: ['title', 'titles', 'text', 'keywords'], extractField, processTerm: indexTerm },
  searchOptions: {
    fuzzy: term => (term.length > 5 ? 0.2 : false), prefix: term => term.length > 2,
    boost: { title: 4, text: 2, titles: 1, keywords: 5 }, processTerm: queryTerms, boostDocument,
  },
}
