use super::*;
use crate::commands::{check, doctor, link, report::sample, trace};
use shunt_report::ResultFile;

#[test]
fn what_was_seen_at_ports_has_sections_of_its_own() {
    let answers = [
        link::sample::link().json(),
        doctor::sample::examination().json(),
        check::sample::checks().json(),
        trace::sample::traced().json(),
    ];
    let other = |(nth, answer): (usize, serde_json::Result<String>)| {
        other_file(&ResultFile::letter(nth + 1), &format!("{nth}.json"), &answer.unwrap()).unwrap()
    };
    let others = answers.into_iter().enumerate().map(other).collect();
    let results = sample::result_file().to_owned();
    let results = ResultFile::parse("A".to_owned(), "tc.json".to_owned(), results).unwrap();
    let report = Report::new(vec![results], others);
    assert_eq!((report.count(), report.further_files().count()), (5, 4));
    let page = String::from_utf8(to_html(&report).unwrap()).unwrap();
    let section = |nth: usize| {
        let begin = page.split_once(&format!("<section id=\"inspection-{nth}\">")).unwrap().1;
        begin.split_once("</section>").unwrap().0
    };
    assert!(page.contains("<a href=\"#inspection-4\">E: where the time of packets goes</a>"), "{page}");
    for (nth, wanted) in [
        (1, &["<h3>eth0 (fec), MTU 1500</h3>", "<td>rings</td><td>rx 512 of 512", "eth0 rx_fifo_errors"][..]),
        (2, &["<td>certain</td>", "278 to 347 Mbit/s before, 580 to 611 after", "not seen: "]),
        (3, &["<td>FAIL</td><td>counters</td>", "1 passed, 1 failed, 1 impossible"]),
        (
            4,
            &[
                "slow r0 &#62; r1: median",
                "<td>qdisc</td><td>1886</td>",
                "<figcaption>share of each stage",
                "not seen: send",
            ],
        ),
    ] {
        for wanted in wanted {
            assert!(section(nth).contains(wanted), "{wanted}: {}", section(nth));
        }
    }
    // Failures come first.
    assert!(section(3).find("counters").unwrap() < section(3).find("frames pass both ways").unwrap());
    for other in ["[]", "{}", "[{\"port\": \"eth0\"}]"] {
        assert!(other_file("A", "a.json", other).is_none(), "{other}");
    }
}
