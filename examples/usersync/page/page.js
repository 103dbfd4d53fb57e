"use strict";
const { lang, lost, failed } = document.body.dataset;
const live = document.getElementById("live"), news = document.getElementById("news");

function tell(text, bad) {
  news.textContent = text;
  news.classList.toggle("bad", Boolean(bad));
}

// The server renders all sections. Sections without a change, or with input from the user, stay untouched.
const shown = new Map();
function show(html) {
  const next = document.createElement("template");
  next.innerHTML = html;
  const sections = [...next.content.querySelectorAll("section")];
  for (const section of sections) {
    const old = document.getElementById(section.id), typed = document.activeElement;
    const html = section.outerHTML;
    if (shown.get(section.id) === html || (old?.contains(typed) && typed.tagName === "INPUT")) continue;
    shown.set(section.id, html);
    old?.replaceWith(section);
  }
}

const events = new EventSource("/live?lang=" + lang);
events.onmessage = (event) => show(JSON.parse(event.data));
events.onerror = () => tell(lost, true);
events.onopen = () => { if (news.classList.contains("bad")) tell(""); };

async function post(path, body) {
  try {
    const response = await fetch(path, { method: "POST", body });
    const answer = await response.json();
    const text = answer.error ? [answer.field, answer.error].filter(Boolean).join(": ") : [answer.batch, answer.user ?? answer.users].join(": ");
    tell((response.ok ? "✓ " : "✗ ") + text, !response.ok);
    return response.ok;
  } catch {
    tell(failed, true);
    return false;
  }
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target, fields = new FormData(form);
  document.activeElement.blur();
  if (form.id === "upload") {
    const query = new URLSearchParams({ batch: fields.get("batch"), operator: fields.get("operator") });
    if (await post("/batches?" + query, fields.get("users"))) form.reset();
    return;
  }
  const { batch, user } = form.dataset;
  await post(`/batches/${encodeURIComponent(batch)}/users/${encodeURIComponent(user)}/repair`, new URLSearchParams(fields));
});

document.getElementById("sample").addEventListener("click", async () => {
  const form = document.getElementById("upload");
  form.batch.value ||= "batch-" + Date.now().toString(36);
  form.operator.value ||= "me";
  form.users.value = await (await fetch("/sample?batch=" + encodeURIComponent(form.batch.value))).text();
});
