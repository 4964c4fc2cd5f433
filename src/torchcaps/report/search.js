for (const box of document.querySelectorAll(".searchable")) {
  const input = box.querySelector("input"), nothing = box.querySelector(".nothing");
  const rows = [...box.querySelectorAll("li")].map(row => [row, row.textContent.toLowerCase()]);
  input.parentElement.hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const [row, text] of rows) row.hidden = !words.every(word => text.includes(word));
    nothing.hidden = rows.some(([row]) => !row.hidden);
  });
}
