use super::*;
use crate::render::examples;

fn refusal(text: &str) -> String {
    Source::parse(0, "a.json".to_owned(), text.to_owned()).map(|source| source.label).unwrap_err()
}

#[test]
fn what_cannot_be_reported_on_says_why() {
    let whole = examples::result_file();
    assert_eq!(Source::parse(27, "a.json".to_owned(), whole.clone()).unwrap().label, "AB");
    for nothing in ["", " \n"] {
        assert_eq!(refusal(nothing), "it is empty: measure again");
    }
    let half = &whole[..whole.len() / 2];
    assert!(refusal(half).starts_with("it ends in the middle, after "), "{}", refusal(half));
    let newer = whole.replace("\"version\": 1", "\"version\": 2");
    assert!(refusal(&newer).starts_with("its format is version 2, and this Shunt reads 1"), "{newer}");
    assert!(refusal("{}").starts_with("it is no result of Shunt"));
    let none = Results::new("throughput", shunt_lab::Conditions::default()).to_json().unwrap();
    assert_eq!(refusal(&none), "it has no reading: the measurement ended before its first run");
    let mut value: serde_json::Value = serde_json::from_str(&whole).unwrap();
    value["readings"]["ndr router"]["runs"] = serde_json::json!([]);
    assert_eq!(refusal(&value.to_string()), "it is damaged: `ndr router` has no runs");
}

#[test]
fn labels_go_on_after_z() {
    let labels = [0, 25, 26, 51, 52, 701, 702].map(label);
    assert_eq!(labels, ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
}

#[test]
fn a_report_does_not_take_the_place_of_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("a.json"), dir.path().join("b.json"));
    fs::write(&file, examples::result_file()).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let typed =
        |to: &Path, format| ReportArgs { files: vec![file.clone()], output: Some(to.to_path_buf()), format };
    for to in [&file, &link] {
        let failure = Reporting::resolve(typed(to, None), false).unwrap_err();
        assert!(failure.code == FailureCode::Usage && failure.message.contains("one of the files"));
    }
}

#[test]
fn json_is_of_what_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.json");
    fs::write(&file, examples::result_file()).unwrap();
    let form = |format, json, output: Option<&str>| {
        let typed = ReportArgs { files: vec![file.clone()], output: output.map(PathBuf::from), format };
        Reporting::resolve(typed, json).map(|it| it.form).ok()
    };
    assert_eq!(form(None, false, None), Some(ReportForm::Html));
    assert_eq!(form(None, true, None), Some(ReportForm::Json));
    assert_eq!(form(Some(ReportForm::Csv), false, None), Some(ReportForm::Csv));
    assert_eq!(form(Some(ReportForm::Csv), true, None), None);
    assert_eq!(form(None, true, Some("none.html")), Some(ReportForm::Html));
    assert_eq!(form(Some(ReportForm::Csv), true, Some("none.csv")), Some(ReportForm::Csv));
}
