// Builds the site for the documents of the working tree, and for those of the last patch release
// of each minor version, then checks every page.
//
//   node build.mjs REPOSITORY OUTPUT [BASE]
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { build } from 'vitepress'
import { check } from './check.mjs'
import { stage } from './stage.mjs'

const [root, output, base = '/'] = process.argv.slice(2)
const git = (...args) => execFileSync('git', ['-C', root, ...args], { encoding: 'utf8', maxBuffer: 1 << 28 })

// releases returns the last patch release of each minor version, the newest first.
function releases() {
  const last = {}
  for (const tag of git('tag', '--list', 'v*', '--sort=v:refname').split('\n')) {
    const version = /^(v\d+\.\d+)\.\d+$/.exec(tag)
    if (version) last[version[1]] = tag
  }
  return Object.entries(last).map(([name, ref]) => ({ name, ref, path: name + '/' })).reverse()
}

// documentsOf returns a folder with the documents of a release.
function documentsOf(ref) {
  const folder = mkdtempSync(join(tmpdir(), 'ostiary-site-'))
  const archive = execFileSync('git', ['-C', root, 'archive', ref], { maxBuffer: 1 << 30 })
  execFileSync('tar', ['-x', '-C', folder], { input: archive })
  return folder
}

process.env.VITE_EXTRA_EXTENSIONS = 'cast' // else VitePress takes a recording for a page
const versions = [{ name: 'main', ref: 'main', path: '' }, ...releases()]
rmSync(output, { recursive: true, force: true })
for (const version of versions) {
  const documents = version.path ? documentsOf(version.ref) : resolve(root)
  const staged = stage(documents, 'src')
  writeFileSync('site.json', JSON.stringify({ ...staged, documents, version, versions, base: base + version.path, root: base }))
  await build('.', { outDir: resolve(output, version.path) })
  if (version.path) rmSync(documents, { recursive: true })
}
const found = check(output, base)
for (const fault of found.faults) console.error(fault)
console.log(`${found.pages} pages, ${found.links} links, ${found.faults.length} faults`)
process.exitCode = found.faults.length > 0 || found.pages < 50 ? 1 : 0
