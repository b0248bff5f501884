"use strict";
// The slider: widths and errors at another point of the curve. The page is complete without it.
const curve = JSON.parse(document.getElementById("curve").textContent);
const slider = document.getElementById("budget");
const percent = (value, digits = 1) => (100 * value).toFixed(digits) + "\u00a0%";
const last = curve.points.length - 1;
const columns = ["width", "error"].map((name, place) => {
  const head = document.createElement("th");
  head.scope = "col";
  head.className = "at-slider";
  head.textContent = ["slider: width", "error"][place];
  document.querySelector("table.spaces thead tr").append(head);
  return [...document.querySelectorAll("table.spaces tbody tr")].map((row) => {
    const cell = document.createElement("td");
    cell.className = name + " at-slider";
    row.append(cell);
    return cell;
  });
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
  const largest = Math.max(0, ...point.errors);
  document.getElementById("predicted").textContent = text + ", largest error of a space " + percent(largest);
  curve.before.forEach((before, index) => {
    columns[0][index].textContent = point.widths[index];
    columns[1][index].textContent = point.widths[index] < before ? percent(point.errors[index]) : "";
  });
}
slider.max = last;
slider.value = last - curve.at;
slider.addEventListener("input", show);
document.querySelector(".slider").hidden = false;
show();
