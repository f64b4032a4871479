// Tests the checks of check.mjs with pages that each have one fault.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { check } from './check.mjs'

const page = ({ title = 'A page of the site', description = 'This description has enough characters for a page', language = 'en',
  content = '<h1 id="top">A page</h1><h2>Part</h2>' }) =>
  `<html lang="${language}"><head><title>${title}</title><meta name="description" content="${description}"></head><body><main>${content}</main></body></html>`

const link = href => `<h1>A page</h1><a href="${href}">link</a>`

const cases = {
  'a page without a fault': { want: [] },
  'a link to a heading': { content: link('/site/other.html#there'), want: [] },
  'a link without the ending': { content: link('/site/other'), want: [] },
  'a link to another site': { content: link('https://example.com/'), want: [] },
  'a short title': { title: 'Page', want: ['the title "Page" has fewer than 8 characters'] },
  'the title of another page': { title: 'Another page', want: ['other.html has the same title "Another page": rename one of them'] },
  'a short description': { description: 'Short', want: ['the description "Short" has fewer than 40 characters'] },
  'another language': { language: 'de', want: ['the language is "de", not "en"'] },
  'no heading of level 1': { content: '<h2>Part</h2>', want: ['the page needs one heading of level 1, at its beginning'] },
  'two headings of level 1': { content: '<h1>A</h1><h1>B</h1>', want: ['the page needs one heading of level 1, at its beginning'] },
  'a level that is left out': { content: '<h1>A</h1><h3>B</h3>', want: ['a heading of level 3 follows one of level 1'] },
  'an image without text': { content: '<h1>A</h1><img src="https://example.com/a.png">', want: ['an image has no alternative text'] },
  'an image that is not there': { content: '<h1>A</h1><img src="/site/a.png" alt="a picture">', want: ['the link /site/a.png leads nowhere'] },
  'a link to no page': { content: link('missing.html'), want: ['the link missing.html leads nowhere'] },
  'a link to no heading': { content: link('other.html#here'), want: ['other.html has no element with the id here'] },
  'a link out of the site': { content: link('/other.html'), want: ['the link /other.html leaves the site, which begins with /site/'] },
  'a link over http': { content: link('http://example.com/'), want: ['the link http://example.com/ is neither relative nor https'] },
}

for (const [name, { want, ...parts }] of Object.entries(cases)) {
  test(name, () => {
    const folder = mkdtempSync(join(tmpdir(), 'ostiary-check-'))
    try {
      writeFileSync(join(folder, 'other.html'), page({ title: 'Another page', content: '<h1>Other</h1><h2 id="there">There</h2>' }))
      writeFileSync(join(folder, 'page.html'), page(parts))
      assert.deepEqual(check(folder, '/site/').faults, want.map(fault => 'page.html: ' + fault))
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
}
