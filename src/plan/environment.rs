//! The body's environment variables: a fixed list and those that flags and manifest name.

use sandbox::view::{HOME, INPUT, OUTPUT};

/// The fixed `PATH` of the body.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Precedes [`PATH`] for a bundle.
pub(crate) const BUNDLE_PROGRAMS: &str = "/bundle/node_modules/.bin";

/// What decides the environment.
#[derive(Debug, Clone, Default)]
pub struct Parts<'run> {
    pub run_id: &'run str,
    /// Whether the body is of a bundle, which may have programs of its own.
    pub has_bundle: bool,
    /// Directories of bound host programs: after the fixed ones for a bundle, before them for a
    /// command, as in the caller's `PATH`.
    pub program_directories: &'run [Vec<u8>],
    /// Memory limit of the whole tree, passed to runtimes that would otherwise use the host's size.
    pub memory_bytes: u64,
    /// The terminal type, with `-t`.
    pub terminal: Option<&'run [u8]>,
    /// The image's variables; `None`: the body uses the host's programs.
    pub image: Option<OfImage<'run>>,
    /// Named variables, in order. A later one replaces an earlier one of the same name.
    pub named: &'run [(Vec<u8>, Vec<u8>)],
}

/// The environment of an image.
#[derive(Debug, Clone, Copy)]
pub struct OfImage<'run> {
    /// `Env` of its config.
    pub variables: &'run [(Vec<u8>, Vec<u8>)],
    /// The home of its user, used if `Env` has no `HOME`.
    pub home: &'run [u8],
}

impl<'run> OfImage<'run> {
    fn variable(&self, name: &[u8]) -> Option<&'run [u8]> {
        let found = self.variables.iter().rfind(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }
}

/// The entries of the body's `PATH`.
#[must_use]
pub(crate) fn search_path(parts: &Parts<'_>) -> Vec<Vec<u8>> {
    let named = parts.named.iter().rev().find(|(name, _)| name == b"PATH");
    if let Some((_, value)) = named {
        return value
            .split(|byte| *byte == b':')
            .map(<[u8]>::to_vec)
            .collect();
    }
    let mut directories = Vec::new();
    if parts.has_bundle {
        directories.push(BUNDLE_PROGRAMS.as_bytes().to_vec());
    } else {
        directories.extend_from_slice(parts.program_directories);
    }
    let of_image = parts.image.and_then(|image| image.variable(b"PATH"));
    let fixed = of_image.unwrap_or(PATH.as_bytes());
    directories.extend(fixed.split(|byte| *byte == b':').map(<[u8]>::to_vec));
    if parts.has_bundle {
        directories.extend_from_slice(parts.program_directories);
    }
    directories
}

/// `NAME=value` for each variable.
#[must_use]
pub fn environment(parts: &Parts<'_>) -> Vec<Vec<u8>> {
    // V8 keeps its old space below this. The rest of the limit is for memory that V8 does not count.
    let heap_mib = (parts.memory_bytes >> 20) * 3 / 4;
    let mut list: Vec<(&[u8], Vec<u8>)> = vec![
        (b"PATH", search_path(parts).join(&b':')),
        (b"HOME", HOME.into()),
        (b"TMPDIR", b"/tmp".to_vec()),
        (b"LANG", b"C.UTF-8".to_vec()),
        (b"RUNNER_RUN_ID", parts.run_id.into()),
        (b"RUNNER_INPUT", INPUT.into()),
        (b"RUNNER_OUTPUT", OUTPUT.into()),
        (
            b"NODE_OPTIONS",
            format!("--max-old-space-size={heap_mib}").into_bytes(),
        ),
        (
            b"JAVA_TOOL_OPTIONS",
            format!("-XX:MaxRAM={}m", parts.memory_bytes >> 20).into_bytes(),
        ),
    ];
    if let Some(terminal) = parts.terminal {
        list.push((b"TERM", terminal.to_vec()));
    }
    if let Some(image) = &parts.image {
        list.retain(|(known, _)| *known != b"HOME");
        list.push((b"HOME", image.home.into()));
        for (name, value) in image.variables {
            // `PATH` is set above. RUNNER_* name paths of the run, which no image may change.
            if name != b"PATH" && !name.starts_with(b"RUNNER_") {
                list.retain(|(known, _)| *known != name.as_slice());
                list.push((name, value.clone()));
            }
        }
    }
    for (name, value) in parts.named {
        list.retain(|(known, _)| *known != name.as_slice());
        list.push((name, value.clone()));
    }
    list.into_iter()
        .map(|(name, value)| [name, b"=".as_slice(), value.as_slice()].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_exact_and_what_is_named_replaces() {
        let named = [
            (b"HOME".to_vec(), b"/x".to_vec()),
            (b"A".to_vec(), b"1=2\n3".to_vec()),
        ];
        let parts = Parts {
            run_id: "id",
            memory_bytes: 256 << 20,
            named: &named,
            ..Parts::default()
        };
        let list = environment(&parts);
        let names: Vec<&[u8]> = list
            .iter()
            .map(|entry| entry.split(|byte| *byte == b'=').next().unwrap_or_default())
            .collect();
        let expected: [&[u8]; 10] = [
            b"PATH",
            b"TMPDIR",
            b"LANG",
            b"RUNNER_RUN_ID",
            b"RUNNER_INPUT",
            b"RUNNER_OUTPUT",
            b"NODE_OPTIONS",
            b"JAVA_TOOL_OPTIONS",
            b"HOME",
            b"A",
        ];
        assert_eq!(names, expected);
        assert_eq!(list[8], b"HOME=/x");
        assert_eq!(list[9], b"A=1=2\n3");
        assert_eq!(list[6], b"NODE_OPTIONS=--max-old-space-size=192");
    }

    #[test]
    fn an_image_says_what_nobody_names_and_never_where_the_run_s_own_things_lie() {
        let of_image = [
            (b"PATH".to_vec(), b"/replaced".to_vec()),
            (b"PATH".to_vec(), b"/opt/bin:/bin".to_vec()),
            (b"LANG".to_vec(), b"C".to_vec()),
            (b"A".to_vec(), b"image".to_vec()),
            (b"RUNNER_INPUT".to_vec(), b"/etc/passwd".to_vec()),
        ];
        let named = [(b"A".to_vec(), b"named".to_vec())];
        let parts = Parts {
            has_bundle: true,
            named: &named,
            image: Some(OfImage {
                variables: &of_image,
                home: b"/root",
            }),
            ..Parts::default()
        };
        let list = environment(&parts);
        let has = |entry: &str| list.iter().filter(|one| *one == entry.as_bytes()).count() == 1;
        assert!(
            has("PATH=/bundle/node_modules/.bin:/opt/bin:/bin"),
            "{list:?}"
        );
        for entry in [
            "HOME=/root",
            "LANG=C",
            "A=named",
            "RUNNER_INPUT=/runner/input.json",
        ] {
            assert!(has(entry), "{entry} {list:?}");
        }
    }

    #[test]
    fn a_bundle_s_own_programs_come_first_and_a_named_path_replaces_all() {
        let parts = Parts {
            has_bundle: true,
            ..Parts::default()
        };
        assert_eq!(search_path(&parts)[0], BUNDLE_PROGRAMS.as_bytes());
        let named = [(b"PATH".to_vec(), b"/a:/b".to_vec())];
        let parts = Parts {
            has_bundle: true,
            named: &named,
            ..Parts::default()
        };
        assert_eq!(search_path(&parts), [b"/a".to_vec(), b"/b".to_vec()]);
    }
}
