"use strict";
// Build the download from the data in the page, so that the page has no second copy of it.
{
	const data = document.getElementById("data").textContent;
	const link = document.getElementById("download");
	link.href = URL.createObjectURL(new Blob([data], { type: "application/json" }));
	link.hidden = false;
}
