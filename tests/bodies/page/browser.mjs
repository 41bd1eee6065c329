// Looks at pages in Chromium: node browser.mjs PLAYWRIGHT AXE CHROMIUM DIRECTORY NAME...
// DIRECTORY has NAME.html, and gets a screenshot for each width and colour scheme. Prints a line for
// each thing that is wrong, and at last the number of views.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [playwright, axe, executablePath, directory, ...names] = process.argv.slice(2);
const { chromium } = (await import(pathToFileURL(`${playwright}/index.js`))).default;
const checker = readFileSync(`${axe}/axe.min.js`, "utf8");

const WIDTHS = [360, 1280];
const SCHEMES = ["light", "dark"];

// As root Chromium has no sandbox; a container may have a small /dev/shm.
const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];
const browser = await chromium.launch({ executablePath, args });
let views = 0;

async function look(name, width, colorScheme) {
    const wrong = (text) => console.log(`${name}, ${width}, ${colorScheme}: ${text}`);
    const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme });
    const page = await context.newPage();
    const requests = [];
    page.on("console", (message) => wrong(`console: ${message.text()}`));
    page.on("pageerror", (error) => wrong(`error: ${error.message}`));
    page.on("dialog", (dialog) => wrong(`dialog: ${dialog.message()}`));
    page.on("request", (request) => requests.push(request.url()));
    await page.goto(pathToFileURL(`${directory}/${name}.html`).href);
    await page.screenshot({ path: `${directory}/${name}-${width}-${colorScheme}.png`, fullPage: true });
    // What is folded is part of the page.
    const found = await page.evaluate(() => {
        for (const folded of document.querySelectorAll("details")) folded.open = true;
        const active = document.querySelectorAll("script, img, iframe, object, embed, link, form, base");
        const handlers = [...document.querySelectorAll("*")].flatMap((element) =>
            element.getAttributeNames().filter((attribute) => attribute.startsWith("on")),
        );
        const [red] = getComputedStyle(document.body).backgroundColor.match(/\d+/g);
        return {
            active: [...active].map((element) => element.outerHTML.slice(0, 100)),
            handlers,
            overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
            isLight: Number(red) > 128,
            headlines: document.querySelectorAll("h1").length,
        };
    });
    for (const element of found.active) wrong(`an active element: ${element}`);
    for (const handler of found.handlers) wrong(`a handler: ${handler}`);
    if (found.overflow > 0) wrong(`scrolls by ${found.overflow} pixels to the side`);
    if (found.isLight !== (colorScheme === "light")) wrong("has the other colours");
    if (found.headlines !== 1) wrong(`has ${found.headlines} headlines`);
    if (requests.length !== 1) wrong(`loads ${requests.join(" ")}`);
    await page.evaluate(checker);
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    for (const { id, nodes } of violations) {
        wrong(`axe: ${id}: ${nodes[0].html.slice(0, 200)}: ${nodes[0].failureSummary}`);
    }
    await context.close();
    views += 1;
}

for (const name of names) {
    for (const width of WIDTHS) {
        for (const scheme of SCHEMES) await look(name, width, scheme);
    }
}
await browser.close();
console.log(`looked at ${views} views`);
