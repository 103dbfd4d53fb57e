// This script adds refresh, the choice of rows, dialogs and keys to the pages. Every page also works without it.
const $ = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const kept = (name, value) => {
	try {
		if (value !== undefined) localStorage.setItem(name, value);
		return localStorage.getItem(name);
	} catch { return null; }
};

// Only parse turns a text into elements. It gets pages of this handler only, and the scripts of a parsed page do not run.
const policy = window.trustedTypes?.createPolicy("compensator", { createHTML: (text) => text });
const parse = (text) => new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
const get = async (url, headers = {}) => {
	const answer = await fetch(url, { credentials: "same-origin", redirect: "error", headers });
	if (!answer.ok && answer.status !== 304) throw new Error(String(answer.status));
	return answer;
};

all(".js").forEach((element) => { element.hidden = false; });

// The server writes all times in one zone, which the footer names. The script offers the zone of the browser. It waits for
// an idle moment, because the first use of Intl takes longer than the rest of the page.
const pageZone = document.body.dataset.zone;
const showClock = (time) => {
	const zone = pageZone === "Local" ? undefined : pageZone;
	const at = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" }).format(new Date(time.dateTime));
	time.title = time.dateTime;
	time.textContent = at + (pageZone === "UTC" ? " UTC" : "");
};
(window.requestIdleCallback ?? setTimeout)(() => {
	const offer = $("#zone [data-here]"), zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
	if (!zone || zone === pageZone || (zone === "UTC" && !$("#zone [value=UTC]"))) return;
	offer.value = zone;
	offer.textContent = offer.dataset.here.replace("{0}", zone);
	offer.hidden = false;
});
(window.requestIdleCallback ?? setTimeout)(() => { if ($(".ago")) tellAgo(); });

// An empty .ago gets the distance of the time before it, for example "3 min. ago".
const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
let distance = null;
const tellAgo = () => {
	distance ??= new Intl.RelativeTimeFormat(document.documentElement.lang, { style: "short" });
	const asOf = $(".live time"), now = asOf ? new Date(asOf.dateTime) : Date.now(); // The server's clock, where the page has its time.
	all(".ago").forEach((place) => {
		const seconds = (new Date(place.previousElementSibling.dateTime) - now) / 1000;
		const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length) ?? units.at(-1);
		const text = distance.format(Math.trunc(seconds / length), unit);
		if (place.textContent !== text) place.textContent = text;
	});
};

// The choice of rows.
const tally = () => all("[data-lines]").forEach((form) => {
	const boxes = all('input[name="seen"]', form), chosen = boxes.filter((box) => box.checked).length;
	const words = $(".chosen", form);
	if (!words) return;
	const text = chosen ? words.dataset.some.replace("{0}", chosen) : words.dataset.none;
	if (words.textContent !== text) words.textContent = text;
	all("button[name=do]:not([form])", form).forEach((button) => { button.disabled = chosen === 0; });
	const every = $("[data-all]", form);
	every.hidden = false;
	every.checked = chosen > 0 && chosen === boxes.length;
	every.indeterminate = chosen > 0 && chosen < boxes.length;
});
document.addEventListener("change", (event) => {
	if (event.target.matches?.("[data-all]")) {
		all('input[name="seen"]', event.target.form).forEach((box) => { box.checked = event.target.checked; });
	}
	tally();
});
tally();

// A dialog shows the form that a link or a button leads to. If the form cannot be fetched, the browser follows the link.
const asked = $("#asked");
let opener = null;
const ask = async (url) => {
	try {
		const form = $("#confirm", parse(await (await get(url)).text()));
		if (!form) throw new Error("no form");
		asked.replaceChildren(document.adoptNode(form));
		asked.showModal();
		($('[required]:not([type="checkbox"])', asked) ?? $("button", asked))?.focus();
	} catch {
		location.assign(url);
	}
};
document.addEventListener("click", (event) => {
	const target = event.target.closest?.("[data-dialog], [data-close]");
	if (!target || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
	if (target.matches("[data-close]")) {
		if (asked.open) { event.preventDefault(); asked.close(); }
		return;
	}
	let url = target.href;
	if (!url) {
		const form = target.form, fields = new URLSearchParams(new FormData(form, target));
		if (!form.reportValidity()) return;
		url = form.action + "?" + fields;
	}
	event.preventDefault();
	opener = target;
	ask(url);
});
document.addEventListener("keydown", (event) => { // The space bar presses a link that acts as a button.
	if (event.key === " " && event.target.matches?.('a[role="button"]')) { event.preventDefault(); event.target.click(); }
});
// An open menu closes with Escape, and with a click elsewhere.
document.addEventListener("click", (event) => all(".menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; }));
document.addEventListener("keydown", (event) => {
	const menu = event.key === "Escape" && !asked.open && $(".menu[open]");
	if (!menu) return;
	menu.open = false;
	$("summary", menu).focus();
});
asked.addEventListener("close", () => { asked.replaceChildren(); opener?.focus(); opener = null; });

// A refresh replaces the part of the page that changes. It waits while a person works in that part, so that no element
// moves away from the pointer or the focus.
const every = 5000, soon = 500; // milliseconds
const live = $("#live"), button = $("#live-switch");
let paused = kept("compensator-paused") === "yes", failed = false;
const busy = () => document.hidden || $("dialog[open], .menu[open], .trail details[open], .numbers[open]") || !getSelection().isCollapsed || (live.contains(document.activeElement) && document.activeElement !== button)
	|| document.activeElement?.matches("input, select, textarea") || $('#live input[name="seen"]:checked') || $("#live tbody tr:hover");
const state = () => (paused ? "off" : failed ? "failed" : busy() ? "held" : "on");
const say = (now = state()) => all("#live-state [data-when]").forEach((word) => { word.hidden = word.dataset.when !== now; });
let tag = null; // ETag of the shown page. Without it the server sends the whole page.
const stillSo = (answer) => { // Show the time at which the server read the data.
	const time = $(".live time", live), at = answer.headers.get("Last-Modified") ?? answer.headers.get("Date");
	if (!time || !at) return;
	time.dateTime = new Date(at).toISOString();
	showClock(time);
	if (distance) tellAgo();
};
const refresh = async () => {
	let answer, fresh;
	try {
		answer = await get(location.href, tag ? { "If-None-Match": tag } : {});
		fresh = answer.status === 304 ? live : $("#live", parse(await answer.text()));
		failed = false;
	} catch { failed = true; }
	if (!fresh || paused || busy()) return;
	if (fresh === live) return stillSo(answer);
	tag = answer.headers.get("ETag");
	replace(fresh);
};
// goOn sends the form of an action on all that match, as a press of its button would. The server marks this form only for
// the person who has pressed the button before. The answer is the page of the action.
const goOn = async () => {
	const form = $("form[data-go-on]", live);
	if (!form || paused) return false;
	try {
		const answer = await fetch(form.action, { method: "POST", credentials: "same-origin" });
		if (!answer.ok) throw new Error(String(answer.status));
		const fresh = $("#live", parse(await answer.text()));
		failed = false;
		tag = null;
		if (fresh && !busy()) replace(fresh);
	} catch {
		failed = true;
		return false;
	}
	return true;
};
const replace = (fresh) => {
	const news = fresh.dataset.news !== live.dataset.news;
	all(".js", fresh).forEach((element) => { element.hidden = false; });
	const pressing = document.activeElement === button;
	if (button) $("#live-switch", fresh)?.replaceWith(button); // On the page of an entry, the switch is inside the replaced part. Keep the old switch, because a person may be pressing it.
	live.replaceChildren(...document.adoptNode(fresh).childNodes);
	if (pressing) button.focus({ preventScroll: true });
	live.dataset.news = fresh.dataset.news;
	if (news) $("#news").textContent = fresh.dataset.newsText;
	tally();
	if (distance) tellAgo();
};
if (live && live.dataset.still === undefined) {
	const press = (now) => { if (button) button.setAttribute("aria-pressed", String(paused)); say(now); };
	button?.addEventListener("click", () => { paused = !paused; kept("compensator-paused", paused ? "yes" : "no"); press(); });
	const round = async () => {
		const went = await goOn();
		if (!went && !paused && !busy()) await refresh();
		say();
		setTimeout(round, went ? soon : every);
	};
	press(paused ? "off" : "on"); // Do not call busy here. Nobody works in a new page yet, and busy would make the browser compute the layout.
	setTimeout(round, $("form[data-go-on]", live) ? soon : every);
} else if (button) {
	button.hidden = true;
	const words = $("#live-state");
	if (words) words.hidden = true;
}

// Shortcuts of a single key. A person can switch them off.
const keys = $("#keys"), keysOn = $("#keys-on");
keysOn.checked = kept("compensator-keys") !== "no";
keysOn.addEventListener("change", () => kept("compensator-keys", keysOn.checked ? "yes" : "no"));
$("#help").addEventListener("click", () => keys.showModal());
const move = (by) => {
	const rows = all("main tbody tr, main ol.trail li").filter((row) => $("a", row));
	const at = rows.findIndex((row) => row.contains(document.activeElement));
	const row = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
	if (row) $("a", row).focus();
};
document.addEventListener("keydown", (event) => {
	if (!keysOn.checked || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
	if (event.target.matches('input:not([type="checkbox"]), select, textarea')) return;
	const does = {
		"/": () => $("#find").focus(),
		"?": () => keys.showModal(),
		j: () => move(1),
		k: () => move(-1),
		x: () => document.activeElement.closest("tr")?.querySelector('input[name="seen"]')?.click(),
		a: () => $("form[data-lines] .bar button:enabled")?.focus(),
	}[event.key];
	if (does) { event.preventDefault(); does(); }
});
