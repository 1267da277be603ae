use crate::{Kind, OtherFile, Report, ResultFile, Section, sample, to_csv, to_html, to_json};
use serde_json::{Value, json};
use std::{env, fs, path::PathBuf};

fn page() -> String {
    String::from_utf8(to_html(&sample::report()).unwrap()).unwrap()
}

/// With SHUNT_BLESS=1, rewrites the file.
fn assert_golden(name: &str, text: &str) {
    let path = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("src/golden").join(name);
    if env::var_os("SHUNT_BLESS").is_some_and(|v| v == "1") {
        fs::write(&path, text).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == text,
        "{name} differs; SHUNT_BLESS=1 accepts this:\n{text}"
    );
}

#[test]
fn the_csv_of_a_report_matches_its_golden_file() {
    assert_golden("report.csv", &String::from_utf8(to_csv(&sample::report()).unwrap()).unwrap());
}

#[test]
fn the_page_of_two_cards_matches_its_golden_file() {
    let texts = [include_str!("sample/card.json"), include_str!("sample/card-slower.json")];
    let report = |texts: &[&str]| {
        let parse = |(nth, text): (usize, &&str)| {
            ResultFile::parse(ResultFile::letter(nth), "card.json".to_owned(), (*text).to_owned()).unwrap()
        };
        let files = texts.iter().enumerate().map(parse).collect();
        String::from_utf8(to_html(&Report::new(files, Vec::new())).unwrap()).unwrap()
    };
    let page = report(&texts);
    // The style and the files themselves are those of all pages.
    let cards = between(&page, "<h1>Router cards</h1>", "<section id=\"conditions\">");
    assert_golden("cards.html", cards.trim_start());
    // B forwards a fifth less than A, in each of four figures of both routers, and is equal in all others.
    let count = |verdict: &str| cards.matches(&format!("against A: {verdict}<")).count();
    assert_eq!((count("worse"), count("equal"), count("better")), (8, 9, 0));
    assert!(cards.contains("not measured: CPU time at 50 % of the NDR imix external: cannot tell"));
    // A card alone is not compared.
    let alone = report(&texts[..1]);
    assert!(alone.contains("<h1>Router card</h1>") && !alone.contains("against A"));
}

/// The text between the first `from` and the next `to`.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to}")).0
}

#[test]
fn the_page_of_a_report_contains_the_files_as_json() {
    let page = page();
    let data: Value =
        serde_json::from_str(between(&page, "type=\"application/json\" id=\"data\">", "</script>")).unwrap();
    let printed: Value = serde_json::from_str(&to_json(&sample::report()).unwrap()).unwrap();
    assert_eq!(data, printed);
    let files = [("A", "tc.json"), ("B", "xdp.json"), ("C", "odd.json")].into_iter().zip(sample::files());
    let files: Vec<Value> = files
        .map(|((label, file), (_, text))| {
            json!({"label": label, "file": file, "results": serde_json::from_str::<Value>(text).unwrap()})
        })
        .collect();
    assert_eq!(data, json!({"format": "shunt-report", "version": 1, "files": files}));
}

#[test]
fn texts_of_a_file_are_escaped_in_the_page() {
    let page = page();
    // Names, conditions and units of the odd file, in plots, too.
    assert!(page.contains("&#60;/script&#62;&#60;img src=x") && page.contains("&lt;i&gt;&amp;"));
    for markup in ["<img", "<i>", "<b> ", "onerror=\"", "http://", "https://"] {
        // The XML namespace of SVG looks like an address, but nothing is fetched from it.
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!page.contains(markup), "{markup}");
    }
}

#[test]
fn doubts_stand_above_the_values_that_they_concern() {
    let page = page();
    let article = between(&page, "<h3>ndr router</h3>", "</article>");
    let at = |what: &str| article.find(what).unwrap_or_else(|| panic!("{what}: {article}"));
    let doubt = "A, B: CPU 1 ran at 97.2 %";
    // The median and the share of the line, as text and as a plot.
    let values = ["805\u{a0}kpps", "54.1\u{a0}%", "1.49\u{a0}Mpps", "<svg"];
    assert!(between(&page, "id=\"doubts\"", "<article").contains("<li>B: interrupted: some of its runs"));
    assert!(values.iter().all(|value| at(doubt) < at(value)), "{article}");
    let above = between(&page, "<h3>many</h3>", "</article>");
    assert!(above.contains("C: above what the line can carry") && above.contains("101"), "{above}");
    assert!(above.contains("940 to 941\u{a0}Mbit/s, all runs"), "{above}");
}

#[test]
fn a_file_without_runs_has_a_section_and_its_contents_in_the_json() {
    let other = |kind, file: &str, text: &str| {
        let section = Section { title: format!("of {file}"), about: String::new(), tables: Vec::new() };
        OtherFile::new(kind, "A", file, text, section)
    };
    let others = [(Kind::Model, "m", "{\"a\":  1.50}"), (Kind::Inspection, "i", " []\n")];
    let others = others.map(|(kind, file, text)| other(kind, file, text).unwrap());
    let report = Report::new(Vec::new(), others.into());
    let json = to_json(&report).unwrap();
    let (model, inspection) = (
        "{\"label\":\"A\",\"file\":\"m\",\"predictions\":{\"a\":  1.50}}",
        "\"file\":\"i\",\"inspection\":[]}",
    );
    assert!(json.contains(&format!("\"files\":[],\"models\":[{model}],\"inspections\":[")), "{json}");
    assert!(json.contains(inspection), "{json}");
    let page = String::from_utf8(to_html(&report).unwrap()).unwrap();
    for (id, title) in [("model-1", "of m"), ("inspection-1", "of i")] {
        assert!(page.contains(&format!("<section id=\"{id}\">\n<h2>{title}</h2>")), "{page}");
    }
    assert!(other(Kind::Model, "m", "{").is_err());
}

#[test]
fn a_doubt_that_all_readings_share_is_shown_once_at_the_top() {
    let all = sample::result_file().replace("\"doubts\": [", "\"doubts\": [{\"kind\": \"virtual-links\"},");
    let all = all.replace("},]", "}]");
    let file = ResultFile::parse("A".to_owned(), "a.json".to_owned(), all).unwrap();
    let page = String::from_utf8(to_html(&Report::new(vec![file], Vec::new())).unwrap()).unwrap();
    let top = between(&page, "<section id=\"doubts\"", "</section>");
    assert!(top.contains("<li>virtual links"), "{top}");
    let drawn = page.split_once("<script").unwrap().0;
    assert_eq!(drawn.matches("virtual links").count(), 1, "{drawn}");
    // The doubt about one of the readings stays with it.
    assert!(!top.contains("CPU 1 ran at") && drawn.contains("CPU 1 ran at"), "{drawn}");
}

#[test]
fn files_share_a_doubt_of_one_kind_with_its_range() {
    let file = |nth: usize, percent: f64| {
        let doubts = format!("\"doubts\": [{{\"kind\": \"noisy\", \"percent\": {percent}}},");
        let text = sample::result_file().replace("\"doubts\": [", &doubts).replace("},]", "}]");
        ResultFile::parse(ResultFile::letter(nth), "a.json".to_owned(), text).unwrap()
    };
    let files = [30.0, 20.0].into_iter().enumerate().map(|(nth, percent)| file(nth, percent));
    let page = String::from_utf8(to_html(&Report::new(files.collect(), Vec::new())).unwrap()).unwrap();
    let top = between(&page, "<section id=\"doubts\"", "</section>");
    assert!(top.contains("<li>A, B: noisy: runs differ by 20.0 to 30.0 %</li>"), "{top}");
}
