export npm_config_cache=$PWD/cache npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
mkdir part whole
echo '{"name":"part","version":"1.0.0","bin":{"part":"bin.js"},"scripts":{"postinstall":"echo made >made"}}' >part/package.json
printf '#!/usr/bin/env node\nconsole.log("part runs")\n' >part/bin.js; chmod +x part/bin.js
(cd part; npm pack --silent >/dev/null)
echo '{"name":"whole","version":"1.0.0","scripts":{"start":"part"}}' >whole/package.json
cd whole; npm install --offline --silent ../part/part-1.0.0.tgz
npm start --silent; cat node_modules/part/made
