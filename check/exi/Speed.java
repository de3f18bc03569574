import com.siemens.ct.exi.core.CodingMode;
import com.siemens.ct.exi.core.EXIFactory;
import com.siemens.ct.exi.core.FidelityOptions;
import com.siemens.ct.exi.core.helpers.DefaultEXIFactory;
import com.siemens.ct.exi.grammars.GrammarFactory;
import com.siemens.ct.exi.main.api.sax.EXIResult;
import com.siemens.ct.exi.main.api.sax.SAXFactory;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import javax.xml.parsers.SAXParserFactory;
import org.xml.sax.Attributes;
import org.xml.sax.ContentHandler;
import org.xml.sax.InputSource;
import org.xml.sax.SAXException;
import org.xml.sax.XMLReader;
import org.xml.sax.helpers.AttributesImpl;
import org.xml.sax.helpers.DefaultHandler;

/**
 * How long EXIficient takes, warmed up. A job is a line of the file that is named: document, schema
 * ("-": none), "strict" or "", "bit", "byte", "pre" or "compressed", with tabs between; of each it
 * prints "BYTES ENCODE_US DECODE_US". Encoding begins with SAX events that were recorded, decoding
 * ends in a handler that does nothing; both are the median of batches.
 */
public final class Speed {
    private static final int BATCHES = 9;

    private interface Event {
        void replay(ContentHandler handler) throws SAXException;
    }

    private interface Work {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        long batchNs = Long.parseLong(arguments[1]) * 1_000_000;
        for (String line : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            String[] job = line.split("\t", -1);
            List<Event> events = recorded(Files.readAllBytes(Path.of(job[0])));
            EXIFactory factory = factory(job);
            ByteArrayOutputStream out = new ByteArrayOutputStream(1 << 17);
            // A compressing encoder cannot be used twice.
            boolean anew = job[3].equals("compressed");
            EXIResult kept = new EXIResult(factory);
            Work encode = () -> {
                out.reset();
                EXIResult result = anew ? new EXIResult(factory) : kept;
                result.setOutputStream(out);
                for (Event event : events) {
                    event.replay(result.getHandler());
                }
            };
            double encodeUs = median(encode, batchNs);
            byte[] stream = out.toByteArray();
            XMLReader reader = new SAXFactory(factory).createEXIReader();
            reader.setContentHandler(new DefaultHandler());
            double decodeUs = median(() -> reader.parse(
                    new InputSource(new ByteArrayInputStream(stream))), batchNs);
            System.out.println(stream.length + " " + encodeUs + " " + decodeUs);
            System.out.flush();
        }
    }

    private static EXIFactory factory(String[] job) throws Exception {
        EXIFactory factory = DefaultEXIFactory.newInstance();
        FidelityOptions fidelity = FidelityOptions.createDefault();
        fidelity.setFidelity(FidelityOptions.FEATURE_STRICT, job[2].equals("strict"));
        factory.setFidelityOptions(fidelity);
        factory.setCodingMode(job[3].equals("compressed") ? CodingMode.COMPRESSION
                : job[3].equals("pre") ? CodingMode.PRE_COMPRESSION
                : job[3].equals("byte") ? CodingMode.BYTE_PACKED : CodingMode.BIT_PACKED);
        GrammarFactory grammars = GrammarFactory.newInstance();
        factory.setGrammars(job[1].equals("-") ? grammars.createSchemaLessGrammars()
                : grammars.createGrammars(job[1]));
        return factory;
    }

    /** Microseconds of one run. */
    private static double median(Work work, long batchNs) throws Exception {
        long until = System.nanoTime() + 10 * batchNs;
        int runs = 0;
        while (System.nanoTime() < until) {
            work.run();
            runs++;
        }
        runs = Math.max(1, runs / 10);
        double[] times = new double[BATCHES];
        for (int batch = 0; batch < BATCHES; batch++) {
            long begin = System.nanoTime();
            for (int run = 0; run < runs; run++) {
                work.run();
            }
            times[batch] = (System.nanoTime() - begin) / 1e3 / runs;
        }
        Arrays.sort(times);
        return times[BATCHES / 2];
    }

    private static List<Event> recorded(byte[] document) throws Exception {
        List<Event> events = new ArrayList<>();
        SAXParserFactory parsers = SAXParserFactory.newInstance();
        parsers.setNamespaceAware(true);
        XMLReader reader = parsers.newSAXParser().getXMLReader();
        reader.setContentHandler(new DefaultHandler() {
            private final StringBuilder text = new StringBuilder();

            @Override
            public void startDocument() {
                events.add(ContentHandler::startDocument);
            }

            @Override
            public void endDocument() {
                events.add(ContentHandler::endDocument);
            }

            @Override
            public void startElement(String uri, String local, String name, Attributes given) {
                flush();
                Attributes attributes = new AttributesImpl(given);
                events.add(handler -> handler.startElement(uri, local, name, attributes));
            }

            @Override
            public void endElement(String uri, String local, String name) {
                flush();
                events.add(handler -> handler.endElement(uri, local, name));
            }

            @Override
            public void characters(char[] characters, int start, int length) {
                text.append(characters, start, length);
            }

            private void flush() {
                if (text.length() > 0) {
                    char[] characters = text.toString().toCharArray();
                    text.setLength(0);
                    events.add(handler -> handler.characters(characters, 0, characters.length));
                }
            }
        });
        reader.parse(new InputSource(new ByteArrayInputStream(document)));
        return events;
    }
}
