import com.siemens.ct.exi.core.CodingMode;
import com.siemens.ct.exi.core.EXIFactory;
import com.siemens.ct.exi.core.EncodingOptions;
import com.siemens.ct.exi.core.FidelityOptions;
import com.siemens.ct.exi.core.grammars.Grammars;
import com.siemens.ct.exi.core.helpers.DefaultEXIFactory;
import com.siemens.ct.exi.grammars.GrammarFactory;
import com.siemens.ct.exi.main.api.sax.EXIResult;
import com.siemens.ct.exi.main.api.sax.SAXFactory;
import java.io.BufferedOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.xml.namespace.QName;
import org.xml.sax.Attributes;
import org.xml.sax.InputSource;
import org.xml.sax.XMLReader;
import org.xml.sax.ext.DefaultHandler2;

/**
 * EXIficient for many files: reads jobs, one a line, and says of each "NUMBER ok" or why not.
 *
 * <p>A job has these fields with tabs between: number, "decode" or "encode", preserved items and flags
 * by the letters of the W3C test suite, valuePartitionCapacity, valueMaxLength, blockSize, schema
 * ("-": none, "": the built-in types, or a file), pairs of a datatype representation map, the file to
 * read, the file to write, the place of the source, and perhaps the EXI Profile: localValuePartitions,
 * maximumNumberOfBuiltInElementGrammars and maximumNumberOfBuiltInProductions (-1: none). Decoded documents are written as events, one a line.
 */
public final class Peer {
    private static final Map<String, Grammars> GRAMMARS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            String[] job = line.split("\t", -1);
            String said = "ok";
            try {
                run(job);
            } catch (Exception | StackOverflowError | OutOfMemoryError error) {
                said = String.valueOf(error).replace('\n', ' ').replace('\r', ' ');
            }
            System.out.println(job[0] + " " + said);
        }
    }

    private static Grammars grammars(String schema) throws Exception {
        Grammars known = GRAMMARS.get(schema);
        if (known == null) {
            GrammarFactory factory = GrammarFactory.newInstance();
            known = schema.equals("-") ? factory.createSchemaLessGrammars()
                    : schema.isEmpty() ? factory.createXSDTypesOnlyGrammars()
                    : factory.createGrammars(schema);
            GRAMMARS.put(schema, known);
        }
        return known;
    }

    private static EXIFactory factory(String[] job) throws Exception {
        String preserve = job[2];
        String flags = job[3];
        EXIFactory factory = DefaultEXIFactory.newInstance();
        FidelityOptions fidelity = FidelityOptions.createDefault();
        fidelity.setFidelity(FidelityOptions.FEATURE_COMMENT, preserve.contains("c"));
        fidelity.setFidelity(FidelityOptions.FEATURE_DTD, preserve.contains("d"));
        fidelity.setFidelity(FidelityOptions.FEATURE_LEXICAL_VALUE, preserve.contains("l"));
        fidelity.setFidelity(FidelityOptions.FEATURE_PI, preserve.contains("p"));
        fidelity.setFidelity(FidelityOptions.FEATURE_PREFIX, preserve.contains("x"));
        fidelity.setFidelity(FidelityOptions.FEATURE_SC, flags.contains("r"));
        fidelity.setFidelity(FidelityOptions.FEATURE_STRICT, flags.contains("v"));
        factory.setFidelityOptions(fidelity);
        factory.setCodingMode(flags.contains("c") ? CodingMode.COMPRESSION
                : flags.contains("p") ? CodingMode.PRE_COMPRESSION
                : flags.contains("a") ? CodingMode.BYTE_PACKED : CodingMode.BIT_PACKED);
        factory.setFragment(flags.contains("f"));
        if (!job[4].isEmpty()) {
            factory.setValuePartitionCapacity(Integer.parseInt(job[4]));
        }
        if (!job[5].isEmpty()) {
            factory.setValueMaxLength(Integer.parseInt(job[5]));
        }
        if (!job[6].isEmpty()) {
            factory.setBlockSize(Integer.parseInt(job[6]));
        }
        Grammars grammars = grammars(job[7]);
        factory.setGrammars(grammars);
        factory.setSchemaIdResolver(id -> grammars);
        if (flags.contains("r")) {
            factory.setSelfContainedElements(new QName[] {new QName("urn:foo", "ANY")});
        }
        if (!job[8].isEmpty()) {
            List<QName> types = new ArrayList<>();
            List<QName> representations = new ArrayList<>();
            for (String pair : job[8].split(" ")) {
                String[] names = pair.split("-");
                types.add(new QName("http://www.w3.org/2001/XMLSchema", names[0]));
                representations.add(new QName("http://www.w3.org/2009/exi", names[1]));
            }
            factory.setDatatypeRepresentationMap(types.toArray(new QName[0]),
                    representations.toArray(new QName[0]));
        }
        if (preserve.contains("d")) {
            factory.getEncodingOptions().setOption(EncodingOptions.RETAIN_ENTITY_REFERENCE);
        }
        factory.getEncodingOptions().setOption(EncodingOptions.INCLUDE_INSIGNIFICANT_XSI_NIL);
        if (flags.contains("m")) {
            factory.getEncodingOptions().setOption(EncodingOptions.INCLUDE_COOKIE);
        }
        if (flags.contains("o")) {
            factory.getEncodingOptions().setOption(EncodingOptions.INCLUDE_OPTIONS);
        }
        if (job.length > 12) {
            String[] profile = job[12].split(" ");
            factory.setLocalValuePartitions(profile[0].equals("1"));
            factory.setMaximumNumberOfBuiltInElementGrammars(Integer.parseInt(profile[1]));
            factory.setMaximumNumberOfBuiltInProductions(Integer.parseInt(profile[2]));
            factory.getEncodingOptions().setOption(EncodingOptions.INCLUDE_PROFILE_VALUES);
        }
        return factory;
    }

    private static void run(String[] job) throws Exception {
        EXIFactory factory = factory(job);
        if (job[1].equals("encode")) {
            encode(factory, job[9], job[10], job[11]);
        } else {
            decode(factory, job[9], job[10]);
        }
    }

    private static void encode(EXIFactory factory, String in, String out, String base)
            throws Exception {
        try (FileInputStream document = new FileInputStream(in);
                OutputStream stream = new BufferedOutputStream(new FileOutputStream(out))) {
            EXIResult result = new EXIResult(factory);
            result.setOutputStream(stream);
            XMLReader reader = new org.apache.xerces.parsers.SAXParser();
            reader.setFeature("http://xml.org/sax/features/namespaces", true);
            reader.setFeature("http://xml.org/sax/features/namespace-prefixes", false);
            reader.setFeature("http://xml.org/sax/features/validation", false);
            // Defaults of attributes from a document type are no part of the sources.
            reader.setFeature("http://apache.org/xml/features/nonvalidating/load-external-dtd", false);
            reader.setContentHandler(result.getHandler());
            Object lexical = result.getLexicalHandler();
            reader.setProperty("http://xml.org/sax/properties/lexical-handler", lexical);
            reader.setProperty("http://xml.org/sax/properties/declaration-handler", lexical);
            reader.setDTDHandler((org.xml.sax.DTDHandler) lexical);
            InputSource source = new InputSource(document);
            source.setSystemId(Path.of(base).toUri().toString());
            reader.parse(source);
        }
    }

    private static void decode(EXIFactory factory, String in, String out) throws Exception {
        try (PrintWriter lines = new PrintWriter(out, StandardCharsets.UTF_8);
                FileInputStream stream = new FileInputStream(in)) {
            XMLReader reader = new SAXFactory(factory).createEXIReader();
            Events events = new Events(lines);
            reader.setContentHandler(events);
            reader.setProperty("http://xml.org/sax/properties/lexical-handler", events);
            reader.parse(new InputSource(stream));
            events.end();
        }
    }

    /** Writes what it is told, one event a line. */
    private static final class Events extends DefaultHandler2 {
        private final PrintWriter lines;
        private final StringBuilder text = new StringBuilder();
        private final List<String[]> mappings = new ArrayList<>();

        Events(PrintWriter lines) {
            this.lines = lines;
        }

        private void line(String kind, String... fields) {
            StringBuilder line = new StringBuilder(kind);
            for (String field : fields) {
                String plain = field == null ? "" : field;
                line.append('\t').append(plain.replace("\\", "\\\\").replace("\t", "\\t")
                        .replace("\n", "\\n").replace("\r", "\\r"));
            }
            lines.print(line.append('\n'));
        }

        private void flush() {
            if (text.length() > 0) {
                line("text", text.toString());
                text.setLength(0);
            }
        }

        void end() {
            flush();
            line("end");
        }

        private static String prefix(String qualified) {
            int colon = qualified.indexOf(':');
            return colon < 0 ? "" : qualified.substring(0, colon);
        }

        @Override
        public void startPrefixMapping(String prefix, String uri) {
            mappings.add(new String[] {prefix, uri});
        }

        @Override
        public void startElement(String uri, String local, String qualified, Attributes attributes) {
            flush();
            line("start", uri, local, prefix(qualified));
            for (String[] mapping : mappings) {
                line("namespace", mapping);
            }
            mappings.clear();
            for (int at = 0; at < attributes.getLength(); at++) {
                line("attribute", attributes.getURI(at), attributes.getLocalName(at),
                        prefix(attributes.getQName(at)), attributes.getValue(at));
            }
        }

        @Override
        public void endElement(String uri, String local, String qualified) {
            flush();
            line("close");
        }

        @Override
        public void characters(char[] characters, int start, int length) {
            text.append(characters, start, length);
        }

        @Override
        public void comment(char[] characters, int start, int length) {
            flush();
            line("comment", new String(characters, start, length));
        }

        @Override
        public void processingInstruction(String target, String data) {
            flush();
            line("instruction", target, data);
        }

        @Override
        public void startDTD(String name, String publicId, String systemId) {
            line("doctype", name, publicId, systemId);
        }

        @Override
        public void skippedEntity(String name) {
            flush();
            line("entity", name);
        }

        @Override
        public void startEntity(String name) {
            flush();
            line("entity", name);
        }
    }
}
