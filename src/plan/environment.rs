//! The body's environment: exactly this list, and what was named.

use sandbox::view::{HOME, INPUT, OUTPUT};

/// Where programs are looked for inside, in this order.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What precedes it for a bundle that brings programs of its own.
pub(crate) const BUNDLE_PROGRAMS: &str = "/bundle/node_modules/.bin";

/// What the list is made of.
#[derive(Debug, Clone, Default)]
pub struct Parts<'run> {
    pub run_id: &'run str,
    /// Whether a bundle may bring programs.
    pub has_bundle: bool,
    /// Directories of programs that were bound from elsewhere: behind the fixed ones for a bundle,
    /// before them for a command, whose caller has them before.
    pub program_directories: &'run [Vec<u8>],
    /// Memory of the whole tree: runtimes that would size themselves by the host are told.
    pub memory_bytes: u64,
    /// The terminal type where the body has a terminal.
    pub terminal: Option<&'run [u8]>,
    /// What an image says; `None` where the host's programs are the body's.
    pub image: Option<OfImage<'run>>,
    /// Named variables, in order; a later one replaces an earlier one of the same name.
    pub named: &'run [(Vec<u8>, Vec<u8>)],
}

/// What an image says of the environment in it.
#[derive(Debug, Clone, Copy)]
pub struct OfImage<'run> {
    /// `Env` of its config.
    pub variables: &'run [(Vec<u8>, Vec<u8>)],
    /// The home of its user, which counts where `Env` has none.
    pub home: &'run [u8],
}

impl<'run> OfImage<'run> {
    fn variable(&self, name: &[u8]) -> Option<&'run [u8]> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }
}

/// Directories in which a program is looked for, in order.
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
    let of_programs = parts.program_directories.iter().cloned();
    if parts.has_bundle {
        directories.push(BUNDLE_PROGRAMS.as_bytes().to_vec());
    } else {
        directories.extend(of_programs.clone());
    }
    let of_image = parts.image.and_then(|image| image.variable(b"PATH"));
    let fixed = of_image.unwrap_or(PATH.as_bytes());
    directories.extend(fixed.split(|byte| *byte == b':').map(<[u8]>::to_vec));
    if parts.has_bundle {
        directories.extend(of_programs);
    }
    directories
}

/// `NAME=value` for each variable.
#[must_use]
pub fn environment(parts: &Parts<'_>) -> Vec<Vec<u8>> {
    // V8 keeps its old space below this; the rest of the limit is for what it does not count.
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
            // What says where the run's own things lie is not an image's to say; and PATH is in it.
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
