// Spends the code after the # for a cookie, and forgets it: it is in no request line, no log and no history.
const said = document.getElementById("said");
const code = location.hash.slice(1);
history.replaceState(null, "", "/login");

const answer = code && await fetch("/api/login", {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ code }),
});

if (answer && answer.ok) {
  location.replace("/");
} else {
  said.textContent = "This link no longer holds. Make another with: backstay link";
}
