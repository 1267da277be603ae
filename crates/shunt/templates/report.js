"use strict";
// Not a second copy of the data: the link is made of what is in the page.
{
	const data = document.getElementById("data").textContent;
	const link = document.getElementById("download");
	link.href = URL.createObjectURL(new Blob([data], { type: "application/json" }));
	link.hidden = false;
}
