// What is wrong with the layout of a page. The function is sent to the browser as text.

// layoutFaults expects that nothing is cut off: long lines of code continue on the next row, aligned
// output of commands scrolls with a visible bar, and tables fit.
export function layoutFaults() {
  const faults = []
  document.querySelectorAll('details').forEach(d => { d.open = true })
  const beyond = element => element.scrollWidth - element.clientWidth
  if (document.documentElement.scrollWidth > window.innerWidth) faults.push(`the page is ${document.documentElement.scrollWidth} pixels wide`)
  for (const pre of document.querySelectorAll('.vp-doc pre')) {
    const start = JSON.stringify(pre.textContent.trim().slice(0, 40))
    if (pre.parentElement.matches('[class*=language-]') && beyond(pre.parentElement) > 1) faults.push(`the block ${start} is cut off`)
    if (beyond(pre) <= 1) continue
    if (!pre.querySelector('.aligned')) faults.push(`the code ${start} is cut off by ${beyond(pre)} pixels`)
    if (pre.offsetHeight - pre.clientHeight < 4) faults.push(`the code ${start} scrolls without a visible bar`)
  }
  for (const table of document.querySelectorAll('.vp-doc table')) {
    if (beyond(table) > 1) faults.push(`the table ${JSON.stringify(table.textContent.trim().slice(0, 40))} is ${beyond(table)} pixels too wide`)
  }
  for (const line of window.innerWidth < 1000 ? [] : document.querySelectorAll('.vp-doc .language-yaml .line')) {
    const rows = line.offsetHeight / parseFloat(getComputedStyle(line).lineHeight)
    if (rows > 1.5 && /^ *(- |[\w./-]+: )+[{[].*[}\]]$/.test(line.textContent)) faults.push(`write ${JSON.stringify(line.textContent.trim().slice(0, 60))} in block style`)
  }
  for (const image of document.querySelectorAll('.vp-doc img')) {
    if (image.complete && image.naturalWidth === 0) faults.push(`the image ${image.src.slice(0, 80)} is broken`)
  }
  return faults
}
