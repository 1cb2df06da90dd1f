// Calls hosts/csharp/WebGpuEp.cs against the stand-in and prints what it did.

using System;
using System.Collections.Generic;
using System.IO;
using Microsoft.ML.OnnxRuntime;
using OnnxRuntimeEpWgpu;

public static class Program
{
    public static void Main(string[] arguments)
    {
        Console.WriteLine(string.Join(" ", WebGpuEp.GetEpNames()));
        Console.WriteLine(WebGpuEp.GetLibraryPath(arguments[0]));
        try
        {
            WebGpuEp.GetLibraryPath(arguments[1]);
        }
        catch (FileNotFoundException error)
        {
            Console.WriteLine(error.Message);
        }
        var env = new OrtEnv();
        var options = new SessionOptions();
        try
        {
            options.AppendWebGpu(env, null, arguments[0]);
        }
        catch (InvalidOperationException error)
        {
            Console.WriteLine(error.Message);
        }
        foreach (var name in new[] { "CPUExecutionProvider", "WgpuExecutionProvider", "WebGpuExecutionProvider", "WebGpuExecutionProvider" })
            env.Devices.Add(new OrtEpDevice { EpName = name });
        Console.WriteLine(WebGpuEp.GetDevices(env).Count);
        options.AppendWebGpu(env, new Dictionary<string, string> { { "validationMode", "full" } });
        Console.WriteLine(string.Join(";", env.Calls));
        Console.WriteLine(string.Join(";", options.Calls));
    }
}
