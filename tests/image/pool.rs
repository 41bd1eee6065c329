//! A pool's runs in images: what was begun before anybody asked for one takes it all the same.

use serde_json::json;

use runner::resident::{Pool, PoolOptions};
use runner::spec::image_report::{ImageFound, RootKind};
use runner::spec::oci::reference::Place;
use runner::spec::outcome::Outcome;
use runner::spec::report::Report;
use runner::spec::request::{Request, Subject};

use super::Stored;
use super::layout::{self, base, image};
use super::support::runner;

#[test]
fn runs_of_a_pool_have_images_and_nothing_of_each_other() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let config = json!({ "User": "0", "Env": ["OF_IMAGE=yes"], "WorkingDir": "/srv/app" });
    let image = image(&stored.ground, "image", &[base], config);
    let pool = Pool::start(&PoolOptions::new(runner())).expect("a pool");
    let run = |place: Option<&str>, script: &str| -> Report {
        let argv = ["/bin/sh", "-c", script].map(|word| word.as_bytes().to_vec());
        let caller = pool.caller().clone();
        let mut request = Request::captured(Subject::Command(argv.to_vec()), caller);
        request.caller.oci_directory = Some(stored.store().to_owned());
        request.oci.image = place.map(|place| Place::parse(place).expect("a place"));
        pool.run(&request).expect("a report")
    };
    let place = layout::place(&image);
    let script = "id -u; pwd; echo $OF_IMAGE; only-here; ls /srv/app /usr/lib; echo >/srv/app/left";
    for found in [ImageFound::Pulled, ImageFound::Store] {
        let report = run(Some(&place), script);
        assert_eq!(report.outcome, Outcome::Exited, "{:?}", report.error);
        let text = report.stdout.text().expect("text");
        assert_eq!(
            text,
            "0\n/srv/app\nyes\nonly\n/srv/app:\n\n/usr/lib:\nkept\n"
        );
        let told = report.image.expect("told");
        assert_eq!((told.found, told.root), (found, RootKind::Writable));
    }
    // The next one, without an image, has the host's programs and its own user again.
    let report = run(None, "id -u; ls /usr/bin/only-here 2>/dev/null; true");
    assert_eq!(report.stdout.text(), Some("1000\n"), "{:?}", report.error);
    let report = run(Some("oci:/nonexistent/layout"), "true");
    assert_eq!(report.outcome, Outcome::Refused, "{:?}", report.error);
}
