//! `shunt model stories`: published figures next to the model's. The guide has the same tables of skill and findings.

use super::significant;
use crate::render::columns::align;
use shunt_model::{
    Skill,
    stories::{Column, FindingPrediction, FindingValue, StoryPredictions},
};

pub(super) fn describe(stories: &[StoryPredictions]) -> String {
    let mut text = String::new();
    for story in stories {
        text += &format!("{}: the model compared with published figures\n{}\n", story.name, story.source);
        text += &story.columns.iter().map(column).collect::<String>();
        text += &format!(
            "\nskill with {} free parameters: mean error for informative figures that were held out, in % of goodput and \
             in points, compared with that of three predictors that know no mechanism\n{}",
            story.parameters,
            align("<>>>>>>><", &skill_rows(&story.skill))
        );
        if !story.findings.is_empty() {
            text += &format!("\nfindings\n{}", align("<", &finding_rows(&story.findings)));
        }
        text += &format!("\n{}\n\n", story.notes);
    }
    text.trim_end().to_owned() + "\n"
}

fn column(column: &Column) -> String {
    let mut rows = vec![["", "published", "model", ""].map(str::to_owned).to_vec()];
    for (cells, mark) in [(&column.fitted, "fitted"), (&column.held_out, "held out")] {
        rows.extend(cells.iter().map(|cell| {
            let published = significant(cell.published);
            vec![cell.label.clone(), published, format!("{:.1}", cell.predicted), mark.to_owned()]
        }));
    }
    let unit = if column.unit == "%" { "points" } else { "%" };
    let (fitted, held_out) = (error(column.fitted_mean_error), error(column.held_out_mean_error));
    format!(
        "\n{}, {}\n{}mean error in {unit}: fitted {fitted}, held out {held_out}\n",
        column.name,
        column.unit,
        align("<>><", &rows)
    )
}

fn error(mean: Option<f64>) -> String {
    mean.map_or("-".to_owned(), |mean| format!("{mean:.1}"))
}

/// The skill of the model, compared with predictors that know no mechanism. The first row names the columns.
fn skill_rows(skills: &[Skill]) -> Vec<Vec<String>> {
    let heads = [
        "quantity",
        "fitted",
        "held out",
        "informative",
        "model",
        "nothing changes",
        "nearest",
        "two nearest",
        "skill",
    ];
    let row = |skill: &Skill| {
        let errors = [skill.model, skill.nothing_changes, skill.nearest, skill.neighbours].map(error);
        let works = match skill.is_better() {
            Some(true) if skill.works() => "better than each",
            Some(true) => "decided by one figure",
            Some(false) => "none",
            None => "not tested",
        };
        let counts = [skill.fitted, skill.held_out, skill.informative].map(|count| count.to_string());
        [vec![skill.quantity.clone()], counts.to_vec(), errors.to_vec(), vec![works.to_owned()]].concat()
    };
    [heads.map(str::to_owned).to_vec()].into_iter().chain(skills.iter().map(row)).collect()
}

/// The findings of a story, published and predicted. The first row names the columns.
pub(crate) fn finding_rows(findings: &[FindingPrediction]) -> Vec<Vec<String>> {
    let row = |finding: &FindingPrediction| {
        let model: Vec<String> = finding.values.iter().map(finding_value).collect();
        vec![finding.name.clone(), finding.published.clone(), model.join("; ")]
    };
    let heads = ["finding", "published", "model"].map(str::to_owned).to_vec();
    [heads].into_iter().chain(findings.iter().map(row)).collect()
}

fn finding_value(value: &FindingValue) -> String {
    match (value.predicted, &value.refused) {
        // Adding 0 turns -0 into 0.
        (Some(number), _) if value.change => format!("{:+.1}", (10.0 * number).round() / 10.0 + 0.0),
        (Some(number), _) if number < 100.0 => format!("{number:.1}"),
        (Some(number), _) => format!("{number:.0}"),
        (None, Some(why)) => format!("refused: {why}"),
        (None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands::model::on_all_cores, golden::assert_golden_text};
    use shunt_model::stories;
    use std::{env, fs, path::Path};

    const END: &str = "<!-- end -->";

    /// A table of Markdown of the rows of all stories, each with the story in front.
    fn table(
        all: &[StoryPredictions],
        first: &[&str],
        rows_of: impl Fn(&StoryPredictions) -> (Vec<String>, Vec<Vec<String>>),
    ) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = String::new();
        for story in all {
            let (front, mut rows) = rows_of(story);
            let heads = rows.remove(0);
            if text.is_empty() {
                let heads = [first.iter().map(|head| (*head).to_owned()).collect(), heads].concat();
                text = line(&heads) + &line(&vec!["---".to_owned(); heads.len()]);
            }
            text.extend(rows.into_iter().map(|row| line(&[front.clone(), row].concat())));
        }
        text
    }

    fn filled(page: &str, name: &str, table: &str) -> String {
        let marker = format!("<!-- generated by `SHUNT_BLESS=1 cargo test -p shunt`: {name} -->\n");
        let (before, rest) = page.split_once(&marker).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        format!("{before}{marker}\n{table}\n{END}{after}")
    }

    #[test]
    fn the_tables_of_the_guide_are_current() {
        let all = on_all_cores(stories::all(), |story| Ok(story.predict().unwrap())).unwrap();
        let skill = table(&all, &["story", "free parameters"], |story| {
            (vec![story.name.clone(), story.parameters.to_string()], skill_rows(&story.skill))
        });
        let findings =
            table(&all, &["story"], |story| (vec![story.name.clone()], finding_rows(&story.findings)));
        let name = "../../../../../../docs/guide/model.md";
        let page = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../docs/guide/model.md");
        let page = fs::read_to_string(page).unwrap();
        assert_golden_text(name, &filled(&filled(&page, "skill", &skill), "findings", &findings));
    }

    #[test]
    fn a_number_of_a_finding_has_its_sign_if_it_is_a_change() {
        let value = |predicted, change, refused: Option<&str>| {
            finding_value(&FindingValue {
                predicted,
                change,
                within: None,
                refused: refused.map(str::to_owned),
            })
        };
        let texts = [
            value(Some(8.37), false, None),
            value(Some(215.4), false, None),
            value(Some(-0.01), true, None),
            value(Some(6.8), true, None),
            value(None, false, Some("forward.external_ns is unknown")),
        ];
        assert_eq!(texts, ["8.4", "215", "+0.0", "+6.8", "refused: forward.external_ns is unknown"]);
    }
}
