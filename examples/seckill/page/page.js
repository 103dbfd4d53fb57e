"use strict";
const said = document.body.dataset; // what is told of each outcome, in the page's language
const live = document.getElementById("live"), news = document.getElementById("news");
const text = (code) => document.body.getAttribute("data-" + code);

function tell(what, bad) {
  news.textContent = what;
  news.classList.toggle("bad", Boolean(bad));
}

// The server renders all of it.
const events = new EventSource("/live?lang=" + said.lang);
events.onmessage = (event) => { live.innerHTML = JSON.parse(event.data); };
events.onerror = () => tell(text("lost"), true);
events.onopen = () => { if (news.textContent === text("lost")) tell(""); };

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
    const got = await post("/seckill", { buyer: form.buyer.value, goods: said.goods });
    tell(`${got.ok ? "✓" : "✗"} ${form.buyer.value}: ${text(got.ok ? "accepted" : got.code) ?? got.error}`, !got.ok);
  },
  crowd: async (form) => {
    const got = await post("/crowd", { buyers: Number(form.buyers.value) });
    tell(`${got.ok ? "✓" : "✗"} ${text(got.ok ? "crowd" : got.code) ?? got.error}`, !got.ok);
  },
};

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  await forms[event.target.id](event.target);
  button.disabled = false;
});
