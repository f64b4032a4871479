// Serves a built site as its host does: compressed, and with the types of its files. It counts what the
// browser loads for a page, without what it prefetches for the next ones.
import { existsSync, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join } from 'node:path'
import { gzipSync } from 'node:zlib'

const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json', '.png': 'image/png', '.svg': 'image/svg+xml', '.woff2': 'font/woff2' }

// serve returns the address of a server for a folder, and its counts.
export async function serve(folder) {
  const counts = { bytes: 0, requests: 0 }
  const compressed = new Map()
  const server = createServer((request, response) => {
    const path = join(folder, decodeURI(new URL(request.url, 'http://localhost').pathname)).replace(/\/$/, '/index.html')
    const type = types[extname(path)] ?? 'text/plain'
    if (!existsSync(path) || !statSync(path).isFile()) return response.writeHead(404, { 'Content-Type': type }).end()
    const body = /png|woff2/.test(path) ? readFileSync(path) : compressed.get(path) ?? gzipSync(readFileSync(path))
    if (!/png|woff2/.test(path)) compressed.set(path, body)
    if (!/prefetch/.test(request.headers['sec-purpose'] ?? request.headers.purpose ?? '')) {
      counts.bytes += body.length
      counts.requests++
    }
    response.writeHead(200, { 'Content-Type': type, ...(/png|woff2/.test(path) ? {} : { 'Content-Encoding': 'gzip' }) }).end(body)
  }).listen(0, '127.0.0.1')
  await new Promise(resolve => server.once('listening', resolve))
  return { address: `http://127.0.0.1:${server.address().port}/`, counts, close: () => server.close() }
}
