//! Published measurements of real boards, compared with the model's predictions.
//!
//! A story has cases (boards), rows (what was measured) and parameters that were fitted. Only some rows were used for
//! the fit; the others were held out, so their errors say how well the model predicts.

mod evidence;
mod findings;

pub use evidence::{Evidence, Pair, PublishedRun, Settings, evidence, name_of};
pub use findings::{FindingPrediction, FindingValue};

use crate::{
    case::{Case, CaseError},
    fit::Quantity,
    optimum::minimum,
    skill::{Figure, Skill, skills},
    world,
};
use findings::Finding;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// The cases of the stories: a name, and a file as for [`Case::parse`].
pub const CASES: [(&str, &str); 12] = [
    ("imx6", include_str!("../cases/imx6.toml")),
    ("imx6-to12", include_str!("../cases/imx6-to12.toml")),
    ("imx6-pcie", include_str!("../cases/imx6-pcie.toml")),
    ("atstk1000", include_str!("../cases/atstk1000.toml")),
    ("atngw100", include_str!("../cases/atngw100.toml")),
    ("imx8-enet-pcie", include_str!("../cases/imx8-enet-pcie.toml")),
    ("imx8-pcie-enet", include_str!("../cases/imx8-pcie-enet.toml")),
    ("nxge", include_str!("../cases/nxge.toml")),
    ("qfe", include_str!("../cases/qfe.toml")),
    ("hme", include_str!("../cases/hme.toml")),
    ("kyu-h3", include_str!("../cases/kyu-h3.toml")),
    ("kyu-am335x", include_str!("../cases/kyu-am335x.toml")),
];

/// A commented case to begin with.
pub const TEMPLATE: &str = include_str!("../cases/template.toml");

const STORIES: [&str; 6] = [
    include_str!("../stories/imx6.toml"),
    include_str!("../stories/avr32.toml"),
    include_str!("../stories/imx8.toml"),
    include_str!("../stories/nxge.toml"),
    include_str!("../stories/hme-qfe.toml"),
    include_str!("../stories/kyu.toml"),
];

/// Duration of the runs of a fit, which are many.
const FIT_SECONDS: f64 = 0.2;

/// Published measurements, as in a file of `stories`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Story {
    /// Its name.
    pub name: String,
    /// What was published, by whom and when.
    pub source: String,
    /// What the model leaves open, and which rows were held out.
    pub notes: String,
    parameter: Vec<Parameter>,
    row: Vec<Row>,
    /// What it found, in a few numbers.
    #[serde(default)]
    finding: Vec<Finding>,
}

/// A parameter that was fitted, for one case or with one value for several.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    cases: Vec<String>,
    name: String,
}

/// What was measured in one run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// What the row belongs to: rows of a table form the columns of the comparison.
    table: String,
    label: String,
    case: String,
    #[serde(default)]
    set: toml::Table,
    goodput: Option<f64>,
    /// Goodput of the first direction, and of the second.
    up: Option<f64>,
    down: Option<f64>,
    loss: Option<f64>,
    cpu: Option<f64>,
    #[serde(default)]
    held_out: bool,
}

/// A story with the model's predictions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoryPredictions {
    /// The name of the story.
    pub name: String,
    /// What was published, by whom and when.
    pub source: String,
    /// What the model leaves open.
    pub notes: String,
    /// Number of parameters that were fitted.
    #[serde(default)]
    pub parameters: usize,
    /// What the model is worth for the figures that were held out.
    #[serde(default)]
    pub skill: Vec<Skill>,
    /// The columns of its tables.
    pub columns: Vec<Column>,
    /// What it found, published and predicted.
    #[serde(default)]
    pub findings: Vec<FindingPrediction>,
}

/// One quantity of one table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The table and the quantity.
    pub name: String,
    /// `Mbit/s` or `%`.
    pub unit: String,
    /// Cells that the parameters were fitted to.
    pub fitted: Vec<Cell>,
    /// Cells that were not used for the fit.
    pub held_out: Vec<Cell>,
    /// Mean of the absolute errors of the fitted cells: in percent if the unit is Mbit/s, else in points. Absent
    /// without cells.
    pub fitted_mean_error: Option<f64>,
    /// The same for the cells that were held out.
    pub held_out_mean_error: Option<f64>,
}

/// A published figure and the model's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The row of the table.
    pub label: String,
    /// The published figure.
    pub published: f64,
    /// The model's.
    pub predicted: f64,
}

/// All stories.
///
/// # Panics
/// Never: the files are part of the program and tested.
pub fn all() -> &'static [Story] {
    static ALL: LazyLock<Vec<Story>> = LazyLock::new(|| {
        STORIES.iter().map(|text| toml::from_str(text).expect("the stories are tested")).collect()
    });
    &ALL
}

/// A case of the library, by name.
pub fn case(name: &str) -> Option<Case> {
    CASES.iter().find(|(known, _)| *known == name).and_then(|(_, text)| Case::parse(text).ok())
}

fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Boolean(on) => if *on { "on" } else { "off" }.to_owned(),
        other => other.to_string(),
    }
}

impl Row {
    fn cells(&self) -> impl Iterator<Item = (Quantity, f64)> {
        let all = [
            (Quantity::Goodput, self.goodput),
            (Quantity::Up, self.up),
            (Quantity::Down, self.down),
            (Quantity::Loss, self.loss),
            (Quantity::Cpu, self.cpu),
        ];
        all.into_iter().filter_map(|(quantity, value)| Some((quantity, value?)))
    }

    /// The case of its run.
    fn case(&self, cases: &BTreeMap<String, Case>) -> Result<Case, CaseError> {
        let mut case = cases.get(&self.case).cloned().ok_or_else(|| CaseError::Text(self.case.clone()))?;
        for (name, value) in &self.set {
            case.set(name, &text(value))?;
        }
        Ok(case)
    }
}

impl Story {
    /// The cases of its rows, by name.
    fn cases(&self) -> BTreeMap<String, Case> {
        self.row.iter().filter_map(|row| Some((row.case.clone(), case(&row.case)?))).collect()
    }

    /// The case of one of its rows.
    fn case_of(&self, label: &str, table: &str) -> Result<Case, CaseError> {
        let row = self.row.iter().find(|row| row.label == label && row.table == table);
        row.ok_or_else(|| CaseError::Text(format!("{label} of {table}")))?.case(&self.cases())
    }

    /// The parameters that its rows set.
    fn names(&self) -> BTreeSet<&str> {
        self.row.iter().flat_map(|row| row.set.keys()).map(String::as_str).collect()
    }

    /// Predicts all rows.
    ///
    /// # Errors
    /// Fails if a row sets a parameter to what it cannot be.
    pub fn predict(&self) -> Result<StoryPredictions, CaseError> {
        let cases = self.cases();
        let mut columns: Vec<(String, Quantity, Column)> = Vec::new();
        let mut figures = Vec::new();
        for row in &self.row {
            let case = row.case(&cases)?;
            let prediction = world::run(&case)?;
            for (quantity, published) in row.cells() {
                let predicted = quantity.value_in(&prediction);
                let (board, held_out, case) = (row.case.as_str(), row.held_out, case.clone());
                figures.push(Figure {
                    board,
                    case,
                    quantity,
                    published,
                    predicted: Some(predicted),
                    held_out,
                });
                let cell = Cell { label: row.label.clone(), published, predicted };
                let known = columns.iter().position(|(table, of, _)| *table == row.table && *of == quantity);
                let at = known.unwrap_or_else(|| {
                    columns.push((row.table.clone(), quantity, Column::new(&row.table, quantity)));
                    columns.len() - 1
                });
                let column = &mut columns[at].2;
                if row.held_out { &mut column.held_out } else { &mut column.fitted }.push(cell);
            }
        }
        let finish = |(_, quantity, mut column): (String, Quantity, Column)| {
            column.fitted_mean_error = mean_error(quantity, &column.fitted);
            column.held_out_mean_error = mean_error(quantity, &column.held_out);
            column
        };
        Ok(StoryPredictions {
            name: self.name.clone(),
            source: self.source.clone(),
            notes: self.notes.clone(),
            parameters: self.parameter.len(),
            skill: skills(&figures, &self.names().into_iter().collect::<Vec<_>>()),
            columns: columns.into_iter().map(finish).collect(),
            findings: self.predict_findings()?,
        })
    }

    /// Predicts the findings alone.
    ///
    /// # Errors
    /// As [`Story::predict`].
    pub fn predict_findings(&self) -> Result<Vec<FindingPrediction>, CaseError> {
        self.finding.iter().map(|finding| finding.predict(self)).collect()
    }

    /// Fits the parameters of its cases to the rows that are not held out, beginning with the values in the case files.
    /// Returns case, parameter and value.
    pub fn refit(&self) -> Vec<(String, String, f64)> {
        let cases = self.cases();
        let start = |parameter: &Parameter| {
            let number = cases.get(&parameter.cases[0])?.number(&parameter.name)?;
            Some(libm::log(number.max(1e-3)))
        };
        let start: Vec<f64> = self.parameter.iter().filter_map(start).collect();
        let with = |logs: &[f64]| {
            let mut cases = cases.clone();
            for (parameter, log) in self.parameter.iter().zip(logs) {
                for name in &parameter.cases {
                    if let Some(case) = cases.get_mut(name) {
                        case.set_number(&parameter.name, libm::exp(*log)).ok()?;
                    }
                }
            }
            Some(cases)
        };
        let cost = |logs: &[f64]| {
            let Some(cases) = with(logs) else { return f64::INFINITY };
            let rows = self.row.iter().filter(|row| !row.held_out);
            let sum = rows.map(|row| {
                let short = row.case(&cases).ok().and_then(|mut case| {
                    case.traffic.seconds = FIT_SECONDS;
                    world::run(&case).ok()
                });
                let Some(prediction) = short else { return f64::INFINITY };
                // No figure counts for more than an error of 60 %: some tables have outliers.
                let of = |(quantity, value): (Quantity, f64)| {
                    let residual =
                        quantity.residual(quantity.value_in(&prediction), value).clamp(-20.0, 20.0);
                    residual * residual
                };
                row.cells().map(of).sum::<f64>()
            });
            sum.sum()
        };
        let mut best = (start.clone(), cost(&start));
        for step in [0.3, -0.2, 0.1, 0.03] {
            let found = minimum(&best.0, step, 80 * (1 + start.len()), cost);
            if found.1 < best.1 {
                best = found;
            }
        }
        let value = |(parameter, log): (&Parameter, &f64)| {
            let value = libm::exp(*log);
            parameter
                .cases
                .iter()
                .map(|case| (case.clone(), parameter.name.clone(), value))
                .collect::<Vec<_>>()
        };
        self.parameter.iter().zip(&best.0).flat_map(value).collect()
    }
}

impl Column {
    fn new(table: &str, quantity: Quantity) -> Self {
        let (what, unit) = match quantity {
            Quantity::Goodput => ("goodput", "Mbit/s"),
            Quantity::Up => ("goodput of the first direction", "Mbit/s"),
            Quantity::Down => ("goodput of the second direction", "Mbit/s"),
            Quantity::Loss => ("loss", "%"),
            Quantity::Cpu => ("CPU load", "%"),
        };
        Self {
            name: format!("{table}: {what}"),
            unit: unit.to_owned(),
            fitted: Vec::new(),
            held_out: Vec::new(),
            fitted_mean_error: None,
            held_out_mean_error: None,
        }
    }
}

fn mean_error(quantity: Quantity, cells: &[Cell]) -> Option<f64> {
    let sum: f64 = cells.iter().map(|cell| quantity.error(cell.predicted, cell.published).abs()).sum();
    (!cells.is_empty()).then(|| sum / cells.len() as f64)
}
