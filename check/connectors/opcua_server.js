// An OPC UA server built with node-opcua.
//
//     node opcua_server.js HOST PORT STATE FOLDER
//
// The node `ns=1;s=count` counts ten times a second; the file STATE has the last number before the node has it. Its history is
// in memory. FOLDER is for certificates, which are made at first use.

const fs = require("fs");
const path = require("path");
const opcua = require("node-opcua");

const [host, port, state, folder] = process.argv.slice(2);
const PERIOD_MS = 100;

async function main() {
    const manager = new opcua.OPCUACertificateManager({ automaticallyAcceptUnknownCertificate: true, rootFolder: path.join(folder, "pki") });
    await manager.initialize();
    const server = new opcua.OPCUAServer({
        host, port: Number(port), hostname: host, serverCertificateManager: manager, maxConnectionsPerEndpoint: 100,
        serverInfo: { applicationUri: "urn:plant:node" },
        serverCapabilities: { maxSessions: 100 },
    });
    await server.initialize();
    const space = server.engine.addressSpace;
    const own = space.getOwnNamespace();
    const plant = own.addObject({ browseName: "Plant", nodeId: "s=plant", organizedBy: space.rootFolder.objects });
    let number = fs.existsSync(state) ? Number(fs.readFileSync(state)) : 0;
    const count = own.addVariable({
        browseName: "count", nodeId: "s=count", componentOf: plant, dataType: "Int32", historizing: true, accessLevel: "CurrentRead | HistoryRead",
        userAccessLevel: "CurrentRead | HistoryRead",
    });
    const fast = own.addVariable({ browseName: "fast", nodeId: "s=fast", componentOf: plant, dataType: "Int32" });
    space.installHistoricalDataNode(count, { maxOnlineValues: 100000 });
    for (const variable of [count, fast]) {
        variable.setValueFromSource({ dataType: opcua.DataType.Int32, value: number });
    }
    await server.start();
    setInterval(() => {
        number += 1;
        fs.writeFileSync(state + ".new", String(number));
        fs.renameSync(state + ".new", state);
        for (const variable of [count, fast]) {
            variable.setValueFromSource({ dataType: opcua.DataType.Int32, value: number });
        }
    }, PERIOD_MS);
    console.log("ready");
}

main();
