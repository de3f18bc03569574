import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import org.apache.jena.graph.Graph;
import org.apache.jena.graph.Node;
import org.apache.jena.graph.NodeFactory;
import org.apache.jena.graph.Triple;
import org.apache.jena.query.Dataset;
import org.apache.jena.query.DatasetFactory;
import org.apache.jena.query.QueryExecution;
import org.apache.jena.query.ReadWrite;
import org.apache.jena.query.ResultSet;
import org.apache.jena.riot.Lang;
import org.apache.jena.riot.RDFParser;
import org.apache.jena.tdb2.TDB2Factory;

/**
 * Apache Jena with the triples that Chappe stores for the same services:
 * JenaPeer memory|FOLDER TEMPLATE SERVICES STEP SEED.
 *
 * <p>TEMPLATE has N-Triples in parts, one for each request of a publication, separated by lines of dashes; in each
 * service NUMBER, BUSINESS, TMODEL, SERVICE and BINDING are replaced. Each part is parsed and added in one
 * transaction. An inquiry finds a service by its name in SPARQL, and reads all that is said of it and its binding. For
 * each STEP services a line: services, the medians of publication and inquiry in ms, bytes of the heap that are used.
 */
public final class JenaPeer {
    private static final String UDDI = "https://chappe.example/ns/uddi#";
    private static final Node PARENT = NodeFactory.createURI(UDDI + "serviceKey");
    private static final long HEAP_EVERY = 1000;

    private final Dataset dataset;
    private final String[] parts;

    private JenaPeer(Dataset dataset, String[] parts) {
        this.dataset = dataset;
        this.parts = parts;
    }

    public static void main(String[] arguments) throws Exception {
        boolean inMemory = arguments[0].equals("memory");
        Dataset dataset = inMemory ? DatasetFactory.createTxnMem() : TDB2Factory.connectDataset(arguments[0]);
        String[] parts = Files.readString(Path.of(arguments[1])).split("(?m)^-+\n");
        int services = Integer.parseInt(arguments[2]);
        int step = Integer.parseInt(arguments[3]);
        Random random = new Random(Long.parseLong(arguments[4]));
        JenaPeer peer = new JenaPeer(dataset, parts);
        for (int published = 0; published < services; published += step) {
            long[] publish = new long[step];
            for (int one = 0; one < step; one++) {
                long start = System.nanoTime();
                peer.publish(published + one);
                publish[one] = System.nanoTime() - start;
            }
            long[] inquire = new long[step];
            for (int one = 0; one < step; one++) {
                int number = random.nextInt(published + step);
                long start = System.nanoTime();
                peer.inquire(number);
                inquire[one] = System.nanoTime() - start;
            }
            int now = published + step;
            long heap = now % HEAP_EVERY == 0 || now >= services ? heap() : 0;
            System.out.println(now + " " + median(publish) + " " + median(inquire) + " " + heap);
        }
        System.out.println("done");
    }

    private void publish(int number) {
        String[] keys = {"BUSINESS", "TMODEL", "SERVICE", "BINDING"};
        String name = String.format("%06d", number);
        for (String part : parts) {
            String text = part.replace("NUMBER", name);
            for (String key : keys) {
                text = text.replace(key, UUID.nameUUIDFromBytes((key + number).getBytes()).toString());
            }
            dataset.begin(ReadWrite.WRITE);
            RDFParser.create().source(new StringReader(text)).lang(Lang.NTRIPLES)
                .parse(dataset.getDefaultModel());
            dataset.commit();
            dataset.end();
        }
    }

    private void inquire(int number) {
        String name = String.format("Pulse of ward %06d", number);
        String query = "PREFIX uddi: <" + UDDI + "> SELECT ?s { ?s uddi:name \"" + name
            + "\"@en . ?s a uddi:businessService }";
        dataset.begin(ReadWrite.READ);
        try (QueryExecution run = QueryExecution.dataset(dataset).query(query).build()) {
            ResultSet found = run.execSelect();
            Node service = found.next().get("s").asNode();
            Graph graph = dataset.getDefaultModel().getGraph();
            List<Node> waiting = new ArrayList<>(List.of(service));
            Iterator<Triple> bindings = graph.find(Node.ANY, PARENT, service);
            bindings.forEachRemaining(triple -> waiting.add(triple.getSubject()));
            int read = 0;
            while (!waiting.isEmpty()) {
                Iterator<Triple> said = graph.find(waiting.remove(waiting.size() - 1), Node.ANY, Node.ANY);
                while (said.hasNext()) {
                    Triple triple = said.next();
                    read++;
                    if (triple.getObject().isBlank()) {
                        waiting.add(triple.getObject());
                    }
                }
            }
            if (read < 20) {
                throw new IllegalStateException("only " + read + " triples of " + name);
            }
        } finally {
            dataset.end();
        }
    }

    private static long heap() {
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }

    private static String median(long[] times) {
        Arrays.sort(times);
        return Double.toString(times[times.length / 2] / 1e6);
    }
}
