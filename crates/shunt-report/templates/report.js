"use strict";
// Build the download from the data in the page, so that the page has no second copy of it.
{
	const data = document.getElementById("data").textContent;
	const link = document.getElementById("download");
	link.href = URL.createObjectURL(new Blob([data], { type: "application/json" }));
	link.hidden = false;
}
// Inside a frame of Shunt's web page, an address such as #files would be one of that page.
document.addEventListener("click", (event) => {
	const link = event.target.closest("a[href^='#']");
	if (link && location.protocol === "about:") {
		event.preventDefault();
		document.getElementById(link.getAttribute("href").slice(1)).scrollIntoView();
	}
});
