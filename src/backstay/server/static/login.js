// Exchanges the code after the # for a cookie, and removes it from the address: no request line, log or history has it.
const status = document.getElementById("status");
const code = location.hash.slice(1);
history.replaceState(null, "", "/login");

const response = code && await fetch("/api/login", {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ code }),
});

if (response && response.ok) {
  location.replace("/");
} else {
  status.textContent = "This link is no longer valid. Create another with: backstay link";
}
