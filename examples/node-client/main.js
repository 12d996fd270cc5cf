// Creates a stream, publishes plain records and fetches them. It needs no code of Tidelog, only the
// .proto files, which @grpc/proto-loader reads when the program starts.
//
//   npm install
//   node main.js [BROKER [PROTO_FOLDER]]     default: localhost:9210 ../../proto
'use strict';

const path = require('node:path');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const broker = process.argv[2] ?? 'localhost:9210';
const folder = process.argv[3] ?? path.join(__dirname, '..', '..', 'proto');

const definition = protoLoader.loadSync(
  ['tidelog_proto/admin.proto', 'tidelog_proto/log.proto', 'tidelog_proto/metadata.proto'],
  // Offsets are 64-bit numbers: as strings they keep every digit.
  { includeDirs: [folder], keepCase: true, longs: String, enums: String, defaults: true, oneofs: true },
);
const { Admin, Log, Metadata } = grpc.loadPackageDefinition(definition).tidelog.v1;
const credentials = grpc.credentials.createInsecure();
const admin = new Admin(broker, credentials);
const metadata = new Metadata(broker, credentials);
const clients = [admin, metadata];
const call = (client, method, request) => promisify(client[method].bind(client))(request);

// Any broker takes requests for streams and knows the leaders. Records go to the leader of their partition.
async function logOf(name, partition) {
  const { brokers, streams } = await call(metadata, 'Resolve', { names: [name] });
  const described = streams[0].partitions[partition];
  if (described._leader === undefined) {
    throw new Error(`${name}/${partition} has no leader now. Try again.`);
  }
  const leader = brokers.find((one) => one.broker_id === described.leader);
  // The listener `peer` is for brokers.
  const { host, port } = leader.listeners.find((one) => one.name !== 'peer');
  const log = new Log(`${host}:${port}`, credentials);
  clients.push(log);
  return log;
}

async function main() {
  const { stream } = await call(admin, 'CreateStream', {
    name: 'from-node',
    config: { partitions: 1, durability: 'FSYNC' },
    labels: { example: 'node-client' },
  });
  const count = stream.partitions.length;
  console.log(`stream ${stream.name} has ${count} partition${count === 1 ? '' : 's'}`);
  const log = await logOf(stream.name, 0);

  const { receipts } = await call(log, 'Publish', {
    stream_id: stream.stream_id,
    records: [
      { record: { key: Buffer.from('greeting'), value: Buffer.from('hello from Node') } },
      { record: { value: Buffer.from('with a header'), headers: [{ name: 'lang', value: Buffer.from('js') }] } },
      { record: { value: Buffer.from('only once') }, message_id: 'node-1' },
    ],
  });
  for (const receipt of receipts) {
    console.log(`recorded at offset ${receipt.offset}${receipt.duplicate ? ' (it was recorded before)' : ''}`);
  }

  const responses = log.Fetch({
    partitions: [{ stream_id: stream.stream_id, partition: 0, earliest: true }],
    format: 'RECORDS',
    follow: false,
  });
  for await (const response of responses) {
    if (response.item === 'error') {
      throw new Error(`${response.error.code}: ${response.error.message}`);
    }
    for (const { offset, record } of response.records?.records ?? []) {
      console.log(`${offset}: ${record.value.toString()}`);
    }
  }
}

main()
  .catch((error) => {
    console.error(String(error.message ?? error));
    process.exitCode = 1;
  })
  .finally(() => clients.forEach((client) => client.close()));
