// Saves a text as a file of the reader's computer.
export function saveText(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "_").slice(0, 120) || "file";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
