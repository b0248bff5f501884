"use strict";
// The slider: widths at another point of the curve. The page is complete without it.
const curve = JSON.parse(document.getElementById("curve").textContent);
const slider = document.getElementById("budget");
const percent = (value, digits = 1) => (100 * value).toFixed(digits) + "\u00a0%";
const last = curve.points.length - 1;
const head = document.createElement("th");
head.scope = "col";
head.className = "at-slider";
head.textContent = "slider: width";
document.querySelector("table.spaces thead tr").append(head);
const cells = [...document.querySelectorAll("table.spaces tbody tr")].map((row) => {
  const cell = document.createElement("td");
  cell.className = "width at-slider";
  row.append(cell);
  return cell;
});
function show() {
  const number = last - Number(slider.value);
  const point = curve.points[number];
  document.getElementById("budget-value").textContent = percent(point.flops);
  slider.setAttribute("aria-valuetext", percent(point.flops) + " of the FLOPs");
  let text = percent(point.params) + " of the parameters";
  if (curve.predicted !== null) {
    const value = curve.predicted[number];
    if (number === curve.at) text += " (this result), measured " + curve.label + " " + percent(value, 2);
    else if (value > 0) text += ", predicted " + curve.label + " " + percent(value, 1);
    else text += ", too far from this result to predict";
  }
  document.getElementById("predicted").textContent = text;
  cells.forEach((cell, index) => { cell.textContent = point.widths[index]; });
}
slider.max = last;
slider.value = last - curve.at;
slider.addEventListener("input", show);
document.querySelector(".slider").hidden = false;
show();
