//! Figures of the peers of the same rounds, and their ratios.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::rounds::interleaved;

/// One figure of each, in each round.
pub struct Table {
    /// What the figure is: `launch to exit`.
    pub title: String,
    /// `µs`, `ms`, `ns`, `KiB`.
    pub unit: &'static str,
    pub rows: Vec<Row>,
    /// Rows that the others are divided by.
    pub against: Vec<String>,
}

/// One peer.
pub struct Row {
    pub name: String,
    /// By round: the same place in two rows is the same round.
    pub values: Vec<f64>,
}

/// One row divided by another.
pub struct Ratio {
    pub p50: f64,
    pub min: f64,
    pub p90: f64,
    /// Of the ratios of each round, and their quartiles: the spread.
    pub median: f64,
    pub quartiles: (f64, f64),
}

/// The value below which so many per cent lie; NaN of nothing.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => sorted[(count - 1) * percent / 100],
    }
}

pub fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

impl Row {
    pub fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.values, percent)
    }
}

impl Table {
    pub fn new(title: &str, unit: &'static str, against: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            unit,
            rows: Vec::new(),
            against: against.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// Measures rows of these names in interleaved rounds: `measure(row)` is one value.
    pub fn measure<Name: AsRef<str>>(
        mut self,
        names: &[Name],
        rounds: usize,
        warm_up: usize,
        mut measure: impl FnMut(usize) -> f64,
    ) -> Self {
        let values = interleaved(names.len(), rounds, warm_up, |_, row| measure(row));
        for (name, values) in names.iter().zip(values) {
            self.add(name.as_ref(), values);
        }
        self
    }

    pub fn add(&mut self, name: &str, values: Vec<f64>) {
        self.rows.push(Row {
            name: name.to_owned(),
            values,
        });
    }

    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// One row divided by another; none where one of them was not measured.
    pub fn ratio(&self, name: &str, against: &str) -> Option<Ratio> {
        let (own, other) = (self.row(name)?, self.row(against)?);
        let by_round: Vec<f64> = own
            .values
            .iter()
            .zip(&other.values)
            .map(|(own, other)| own / other)
            .collect();
        let of = |percent| own.percentile(percent) / other.percentile(percent);
        Some(Ratio {
            p50: of(50),
            min: of(0),
            p90: of(90),
            median: median(&by_round),
            quartiles: (percentile(&by_round, 25), percentile(&by_round, 75)),
        })
    }

    fn pairs(&self) -> Vec<(&str, &str, Ratio)> {
        let mut pairs = Vec::new();
        for against in &self.against {
            for row in &self.rows {
                let ratio = self.ratio(&row.name, against);
                if let (false, Some(ratio)) = (row.name == *against, ratio) {
                    pairs.push((row.name.as_str(), against.as_str(), ratio));
                }
            }
        }
        pairs
    }

    /// The figures, then the pairs with their spread.
    pub fn markdown(&self) -> String {
        let unit = self.unit;
        let mut text = format!(
            "| {} | min {unit} | p50 {unit} | p90 {unit} |\n| --- | --- | --- | --- |\n",
            self.title
        );
        for row in &self.rows {
            let [min, p50, p90] = [0, 50, 90].map(|percent| shown(row.percentile(percent)));
            writeln!(text, "| {} | {min} | {p50} | {p90} |", row.name).unwrap();
        }
        let pairs = self.pairs();
        if !pairs.is_empty() {
            text.push_str(
                "\n| pair | p50 | by round: median [quartiles] | min | p90 |\n\
                 | --- | --- | --- | --- | --- |\n",
            );
        }
        for (name, against, ratio) in pairs {
            let Ratio {
                p50,
                min,
                p90,
                median,
                quartiles: (low, high),
            } = ratio;
            writeln!(
                text,
                "| {name} ÷ {against} | {p50:.2} | {median:.2} [{low:.2}–{high:.2}] | {min:.2} | {p90:.2} |"
            )
            .unwrap();
        }
        text
    }

    /// Rows with `min_us` and so on after the unit, and `to` with each ratio.
    pub fn json(&self) -> Vec<Value> {
        let unit = self.unit.replace('µ', "u").to_lowercase();
        self.rows
            .iter()
            .map(|row| {
                let mut line = Map::new();
                line.insert("table".into(), json!(self.title));
                line.insert("name".into(), json!(row.name));
                for (name, percent) in [("min", 0), ("p50", 50), ("p90", 90), ("p99", 99)] {
                    line.insert(
                        format!("{name}_{unit}"),
                        json!(thousandths(row.percentile(percent))),
                    );
                }
                line.insert("rounds".into(), json!(row.values.len()));
                line.insert("to".into(), self.json_ratios(&row.name));
                Value::Object(line)
            })
            .collect()
    }

    fn json_ratios(&self, name: &str) -> Value {
        let ratios = self.pairs().into_iter().filter(|(own, ..)| *own == name);
        let ratios = ratios.map(|(_, against, ratio)| {
            let Ratio {
                p50,
                min,
                p90,
                median,
                quartiles: (low, high),
            } = ratio;
            let [p50, min, p90, median, low, high] =
                [p50, min, p90, median, low, high].map(thousandths);
            let ratio = json!({
                "p50": p50, "min": min, "p90": p90,
                "by_round": {"median": median, "quartiles": [low, high]},
            });
            (against.to_owned(), ratio)
        });
        Value::Object(ratios.collect())
    }
}

/// Three digits that count.
pub(super) fn shown(value: f64) -> String {
    match value.abs() {
        large if 100.0 <= large => format!("{value:.0}"),
        middle if 10.0 <= middle => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(super) fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
