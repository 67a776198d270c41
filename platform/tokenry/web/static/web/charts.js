// Draws every <canvas data-chart="ID"> from the JSON of #ID, in the page's colours, again when those change. Chart.js is unfold's.

const COLOURS = { answered: "--chart-1", completed: "--chart-1", failed: "--chart-2" };
const PALETTE = ["--chart-1", "--chart-3", "--chart-4", "--chart-2"];
const charts = [];

function draw(canvas) {
    const data = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    data.datasets.forEach((set, index) => {
        set.backgroundColor = colour(COLOURS[set.label] ?? PALETTE[index % PALETTE.length]);
        set.maxBarThickness = 28;
    });
    const axis = { stacked: true, ticks: { color: colour("--soft"), precision: 0 }, grid: { color: colour("--line") } };
    return new Chart(canvas, {
        type: "bar",
        data,
        options: {
            animation: false, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
            scales: { x: { ...axis, grid: { display: false } }, y: { ...axis, beginAtZero: true } },
            plugins: { legend: { position: "bottom", labels: { color: colour("--text"), boxWidth: 12 } } },
        },
    });
}

function drawAll() {
    charts.splice(0).forEach((chart) => chart.destroy());
    charts.push(...[...document.querySelectorAll("canvas[data-chart]")].map(draw));
}

addEventListener("load", () => {
    drawAll();
    new MutationObserver(drawAll).observe(document.documentElement, { attributeFilter: ["class", "data-theme"] });
    document.querySelectorAll("[data-submits] select").forEach((select) => select.addEventListener("change", () => select.form.requestSubmit()));
});
