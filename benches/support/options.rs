//! What a bench is asked for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What a bench is called and what it understands.
pub struct Usage {
    /// Its name in `cargo bench --bench NAME`, and in `marks::MARKS`.
    pub bench: &'static str,
    /// One sentence.
    pub about: &'static str,
    pub rounds: usize,
    pub quick_rounds: usize,
    /// Options of its own, as they are shown: `"--launches N"` takes a value, `"--twice"` none.
    pub own: &'static [&'static str],
}

/// What this run was asked for.
pub struct Options {
    pub quick: bool,
    pub rounds: usize,
    /// How long the machine rests before each measurement.
    pub idle: Duration,
    /// JSON in place of the tables.
    pub json: bool,
    /// JSON into a file, beside the tables.
    pub json_file: Option<PathBuf>,
    /// The user as whom everything is to run.
    pub user: Option<u32>,
    bench: &'static str,
    own: BTreeMap<&'static str, String>,
}

const COMMON: [&str; 6] = [
    "--quick",
    "--rounds N",
    "--idle MS",
    "--json",
    "--json=FILE",
    "--user UID",
];

impl Usage {
    pub fn text(&self) -> String {
        let options: Vec<String> = COMMON
            .iter()
            .chain(self.own)
            .map(|option| format!("[{option}]"))
            .collect();
        format!(
            "{}\n\ncargo bench --bench {} -- {}\n",
            self.about,
            self.bench,
            options.join(" ")
        )
    }

    fn own_option(&self, word: &str) -> Option<(&'static str, bool)> {
        self.own.iter().find_map(|option| {
            let (name, value) = option.split_once(' ').unwrap_or((option, ""));
            (name == word).then_some((name, !value.is_empty()))
        })
    }
}

impl Options {
    /// None where help was asked for.
    pub(super) fn read(usage: &Usage) -> Option<Self> {
        let mut options = Self {
            quick: false,
            rounds: 0,
            idle: Duration::ZERO,
            json: false,
            json_file: None,
            user: None,
            bench: usage.bench,
            own: BTreeMap::new(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || {
                let missing = || panic!("{word} takes a value\n{}", usage.text());
                words.next().unwrap_or_else(missing)
            };
            match word.as_str() {
                "--quick" => options.quick = true,
                "--rounds" => options.rounds = value().parse().unwrap(),
                "--idle" => options.idle = Duration::from_millis(value().parse().unwrap()),
                "--json" => options.json = true,
                "--user" => options.user = Some(value().parse().unwrap()),
                // Cargo's own.
                "--bench" => (),
                "--help" => return None,
                word => match (word.strip_prefix("--json="), usage.own_option(word)) {
                    (Some(file), _) => {
                        // A bench may change its working directory.
                        options.json_file = Some(std::path::absolute(file).unwrap());
                    }
                    (_, Some((name, true))) => drop(options.own.insert(name, value())),
                    (_, Some((name, false))) => drop(options.own.insert(name, String::new())),
                    (None, None) => panic!("{word} is not known\n{}", usage.text()),
                },
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.quick {
                usage.quick_rounds
            } else {
                usage.rounds
            };
        }
        Some(options)
    }

    /// The bench's name.
    pub fn bench(&self) -> &'static str {
        self.bench
    }

    /// Whether an option of the bench's own was given.
    pub fn has(&self, name: &str) -> bool {
        self.own.contains_key(name)
    }

    /// What was given with an option of the bench's own.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.own.get(name).map(String::as_str)
    }

    /// The number given with an option of the bench's own, if it was given.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.own.get(name).map(|text| text.parse().unwrap())
    }
}
