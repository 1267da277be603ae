# Prints lines of Markdown and of comments that have more than 120 columns: columns.awk FILE ...
# Targets of links, tables, blocks of code, generated pages and mutants of claims may be longer. A byte that continues a
# character takes no column.
FNR == 1 {
	code = 0
	generated = /^<!-- @?generated/
	markdown = FILENAME ~ /\.md$/
	marker = "^[ \t]*#"
	if (FILENAME ~ /\.rs$/)
		marker = "^[ \t]*//"
	if (FILENAME ~ /\.[ch]$/)
		marker = "^[ \t]*(//|/\\*|\\*)"
}
/^This page is generated/ { generated = 1 }
!markdown && $0 !~ marker { next }
/^ \* mutant: / { next }
/^[ \t]*(\/\/[\/!]?)? *```/ { code = !code }
code || generated || /^[ \t]*(\/\/[\/!]?)? *\|/ { next }
{
	line = $0
	sub(/^\t+/, "&&&&&&&&", line)
	gsub(/\]\([^)]*\)/, "]", line)
	gsub(/<!--[^>]*-->/, "", line)
	gsub(/[\200-\277]/, "", line)
	if (length(line) > 120) {
		print FILENAME ":" FNR ": " length(line) " columns"
		wide = 1
	}
}
END { exit wide }
