"use strict";
const { lang, goods, outcomes } = document.body.dataset;
const told = JSON.parse(outcomes); // text for each outcome, in the page's language
const live = document.getElementById("live"), news = document.getElementById("news");

function tell(what, bad) {
  news.textContent = what;
  news.classList.toggle("bad", Boolean(bad));
}

// The server renders the whole section.
const events = new EventSource("/live?lang=" + lang);
events.onmessage = (event) => { live.innerHTML = JSON.parse(event.data); };
events.onerror = () => tell(told.lost, true);
events.onopen = () => { if (news.textContent === told.lost) tell(""); };

async function post(path, body) {
  try {
    const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    return { ok: response.ok, ...(await response.json()) };
  } catch {
    return { code: "failed" };
  }
}

const forms = {
  buy: async (form) => {
    const got = await post("/seckill", { buyer: form.buyer.value, goods });
    tell(`${got.ok ? "✓" : "✗"} ${form.buyer.value}: ${told[got.ok ? "accepted" : got.code] ?? got.error}`, !got.ok);
  },
  crowd: async (form) => {
    const got = await post("/crowd", { buyers: Number(form.buyers.value) });
    tell(`${got.ok ? "✓" : "✗"} ${told[got.ok ? "crowd" : got.code] ?? got.error}`, !got.ok);
  },
};

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  await forms[event.target.id](event.target);
  button.disabled = false;
});
