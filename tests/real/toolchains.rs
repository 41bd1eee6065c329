//! Each toolchain is found by its name and works under the default policy.

use crate::bundling::exec_bundled;
use support::Ground;
use support::packages::{esbuild, has};

/// Runs a script in the sandbox's shell, as an argument and from a bundle; returns its output.
fn printed(script: &str) -> String {
    let ground = Ground::new();
    let given = ground.run(&[], &["bash", "-euo", "pipefail", "-c", script]);
    given.assert_exited(0);
    let manifest = "name: work\nrun: [bash, -euo, pipefail, work.sh]\n";
    let folder = ground.folder(&[("manifest.yaml", manifest), ("work.sh", script)]);
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), given.text());
    done.text()
}

#[test]
fn every_toolchain_says_its_version() {
    let ground = Ground::new();
    for name in [
        "bash", "node", "npm", "npx", "python3", "pip3", "git", "gcc", "make", "perl", "tar",
    ] {
        if has(name) {
            let done = ground.run(&[], &[name, "--version"]);
            done.assert_exited(0);
            assert!(!done.stdout.is_empty(), "{name}: {done:#?}");
        }
    }
}

#[test]
fn bash_uses_arrays_process_substitution_and_here_documents() {
    let text = printed(
        "words=(c a b)
         paste -sd, <(printf '%s\\n' \"${words[@]}\" | sort)
         cat <<<\"$((6 * 7)) $(echo nested)\"
         sleep 60 & kill %1; wait %1 || echo \"ended by $(($? - 128))\"",
    );
    assert_eq!(text, "a,b,c\n42 nested\nended by 15\n");
}

#[test]
fn gcc_links_a_dynamic_program_and_it_runs_where_it_was_built() {
    let text = printed(
        "cd /tmp
         printf '#include <math.h>\\n#include <stdio.h>\\nint main(int n, char **v)\
          { printf(\"%%.0f\\\\n\", sqrt(n * 49.0)); }\\n' >root.c
         gcc -O1 -o root root.c -lm
         ./root",
    );
    assert_eq!(text, "7\n");
}

#[test]
fn archives_are_packed_and_unpacked() {
    let text = printed(
        "cd /tmp; mkdir tree; seq 1000 >tree/numbers; ln -s numbers tree/link
         tar -czf tree.tar.gz tree; rm -r tree; tar -xzf tree.tar.gz
         tail -n 1 tree/link; readlink tree/link",
    );
    assert_eq!(text, "1000\nnumbers\n");
}

#[test]
fn node_uses_workers_files_and_children() {
    if !has("node") {
        return;
    }
    let text = printed(
        "cat >/tmp/work.js <<'END'
const { Worker } = require('worker_threads');
const { writeFileSync, readFileSync, watch } = require('fs');
writeFileSync('/tmp/file', 'in a file');
const code = 'require(\"worker_threads\").parentPort.postMessage(6 * 7)';
new Worker(code, { eval: true }).on('message', answer => {
  console.log(answer, readFileSync('/tmp/file', 'utf8'));
  console.log(require('child_process').execSync('echo from a child').toString().trim());
});
END
         node /tmp/work.js",
    );
    assert_eq!(text, "42 in a file\nfrom a child\n");
}

#[test]
fn a_go_program_from_an_npm_package_bundles_typescript() {
    let ground = Ground::new();
    let Some(folder) = esbuild() else {
        return;
    };
    let folder = folder.to_str().expect("a plain path");
    let script = format!(
        "cd /tmp
         echo 'export const half = (x: number): number => x / 2' >half.ts
         echo 'import {{ half }} from \"./half\"; console.log(half(84))' >main.ts
         {folder}/node_modules/.bin/esbuild --bundle --log-level=error --outfile=main.js main.ts
         node main.js"
    );
    let done = ground.run(&["--ro", folder], &["bash", "-euc", &script]);
    done.assert_exited(0);
    assert_eq!(done.text(), "42\n");
}
