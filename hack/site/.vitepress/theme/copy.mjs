// commandsIn returns the commands of a console: lines that begin with "$ ", and their
// continuations. The other lines are output.
export function commandsIn(text) {
  const commands = []
  let continued = false
  for (const line of text.split('\n')) {
    if (continued) commands.push(line)
    else if (line.startsWith('$ ')) commands.push(line.slice(2))
    else continue
    continued = line.endsWith('\\')
  }
  return commands.join('\n')
}

// copyCommands makes the copy button of a console copy only the commands.
export function copyCommands(event) {
  const button = event.target.closest?.('div.language-console > button.copy')
  if (!button) return
  event.stopImmediatePropagation()
  navigator.clipboard.writeText(commandsIn(button.parentElement.querySelector('pre').textContent)).then(() => {
    button.classList.add('copied')
    setTimeout(() => button.classList.remove('copied'), 2000)
  })
}
